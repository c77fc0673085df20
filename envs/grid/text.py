"""Shows one step of a recorded grid world as characters: a map, and a line for each agent.

    world_lines(recording, step=120, agent=2, columns=80, rows=24, ascii=False)     # rich.text.Text

A cell is two characters: its content (as in ASCII maps; agents are arrows), then the agent's number or the number of
items in a converter's output. A map larger than the screen is cut around the agent.
"""

from __future__ import annotations

from rich.text import Text

from metta_fast.contracts.recording import Recording
from metta_fast.envs.grid.names import ITEMS, MAP_CHARACTERS, TYPES
from metta_fast.envs.grid.recorder import BUSY

ARROWS, ASCII_ARROWS = "▲▼◀▶", "^v<>"
COLORS = ("yellow", "cyan", "green", "magenta", "blue", "red", "bright_yellow", "white")
"""Agents' colours, used in turn."""
STYLES = {"mine": "red", "generator": "yellow", "altar": "bright_magenta", "block": "bright_black"}
OTHER = "bright_blue"
"""Style of the other converters."""
CHARACTER = {kind: character for character, kind in MAP_CHARACTERS.items()}


def agent_style(agent: int, picked: int | None) -> str:
    """Returns an agent's colour, reversed for the selected one."""
    return COLORS[agent % len(COLORS)] + (" bold reverse" if agent == picked else " bold")


def describe_action(recording: Recording, step: int, agent: int) -> str:
    """Returns a text such as `move forward` or `get_items (failed)`; empty for step 0."""
    if step == 0:
        return ""
    facts = recording.world.facts
    action, argument = recording.action[step - 1, agent].tolist()
    name = facts["actions"][action]
    if name not in facts["plain"]:
        names = facts["arguments"].get(name, ())
        name += f" {names[argument] if argument < len(names) else argument}"
    return name + (" (failed)" if recording.world.tracks["agent_failed"][step, agent] else "")


def world_lines(
    recording: Recording, step: int, agent: int | None, *, columns: int, rows: int, ascii: bool
) -> list[Text]:
    """Returns at most `rows` lines of at most `columns` characters.

    Args:
        agent: the selected agent, or None.
        ascii: use only ASCII characters.
    """
    agents = _agent_lines(recording, step, agent, ascii)
    facts = recording.world.facts
    shown = max(rows - facts["height"] - 1, 3)
    if shown < len(agents):
        first = 0 if agent is None else min(max(agent - shown // 2, 0), len(agents) - shown)
        agents = agents[first : first + shown]
    height = min(facts["height"], rows - len(agents) - 1)
    wide = 2 if columns >= 2 * facts["width"] else 1
    width = min(facts["width"], columns // wide)
    tracks = recording.world.tracks
    center = 0 if agent is None else agent
    top = _cut(int(tracks["agent_row"][step, center]), height, facts["height"])
    left = _cut(int(tracks["agent_col"][step, center]), width, facts["width"])
    lines = []
    for row in _cells(recording, step, agent, ascii)[top : top + height]:
        line = Text(no_wrap=True)
        for characters, style in row[left : left + width]:
            line.append(characters[:wide], style)
        lines.append(line)
    return [*lines, Text(), *agents]


def _cut(middle: int, shown: int, size: int) -> int:
    """Returns the first of `shown` cells around `middle`."""
    return min(max(middle - shown // 2, 0), size - shown)


def _cells(recording: Recording, step: int, picked: int | None, ascii: bool) -> list[list[tuple[str, str]]]:
    """Returns [height][width] of two characters and their style."""
    world, tracks = recording.world, recording.world.tracks
    wall = "##" if ascii else "██"
    cells = [
        [(wall, "bright_black") if c == "#" else ("  ", "") for c in row] for row in world.facts["walls"]
    ]
    for j, kind in enumerate(world.facts["object_type"]):
        name = TYPES[kind]
        recipe = world.facts["recipes"].get(name, {"out": {}})
        held = sum(int(tracks["object_item"][step, j, ITEMS.index(item)]) for item in recipe["out"])
        style = STYLES.get(name.split("_")[0], OTHER)
        if tracks["object_phase"][step, j] == BUSY:
            style += " reverse"
        row, col = tracks["object_row"][step, j], tracks["object_col"][step, j]
        cells[row][col] = (CHARACTER[kind] + (_digit(held) if held else " "), style)
    for k in range(recording.agents):
        row, col = tracks["agent_row"][step, k], tracks["agent_col"][step, k]
        frozen = tracks["agent_frozen"][step, k] > 0
        arrow = (ASCII_ARROWS if ascii else ARROWS)[tracks["agent_orientation"][step, k]]
        cells[row][col] = (("*" if frozen else arrow) + _digit(k), agent_style(k, picked))
    return cells


def _digit(number: int) -> str:
    """Returns one character: 0–9, a–z, + for larger numbers."""
    return "0123456789abcdefghijklmnopqrstuvwxyz+"[min(number, 36)]


def _agent_lines(recording: Recording, step: int, picked: int | None, ascii: bool) -> list[Text]:
    tracks, returns = recording.world.tracks, recording.returns()
    lines = []
    for k in range(recording.agents):
        arrow = (ASCII_ARROWS if ascii else ARROWS)[tracks["agent_orientation"][step, k]]
        reward = float(recording.reward[step - 1, k]) if step else 0.0
        items = tracks["agent_item"][step, k].tolist()
        holds = " ".join(f"{name} {count}" for name, count in zip(ITEMS, items) if count)
        line = Text(no_wrap=True)
        line.append(f"{_digit(k)} {arrow}", agent_style(k, picked))
        line.append(f" return {returns[step, k]:6.2f} ")
        line.append(f"{reward:+6.2f}" if reward else " " * 6, "green" if reward > 0 else "red")
        line.append(f"  {describe_action(recording, step, k):<20} {holds}")
        frozen = tracks["agent_frozen"][step, k]
        if frozen:
            line.append(f" frozen for {frozen}", "cyan")
        lines.append(line)
    return lines
