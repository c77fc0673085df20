"""Draws each kind of world for the terminal and for videos. The page's views are in page/, under the same names.

lines = world_lines(recording, step, agent, columns=80, rows=24, ascii=True)     # rich.text.Text
for frame in world_frames(recording): …                                          # uint8 [height, width, 3]
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.recording import Recording
from metta_fast.envs.world_views import frames_of, lines_of


def world_lines(
    recording: Recording, step: int, agent: int | None, *, columns: int, rows: int, ascii: bool
) -> list[Text]:
    """Draws the world after `step` steps in at most `rows` lines.

    Args:
        agent: the highlighted agent.
        ascii: use ASCII characters only.
    """
    lines = lines_of(recording.world.kind)
    if lines is not None:
        return lines(recording, step, agent, columns=columns, rows=rows, ascii=ascii)
    return _figures(recording, step, rows)


def _figures(recording: Recording, step: int, rows: int) -> list[Text]:
    """Lists each agent's action, reward and return."""
    returns = recording.returns()[step]
    lines = []
    for agent in range(min(recording.agents, rows)):
        line = Text(f"agent {agent}  return {returns[agent]:10.3f}")
        if step:
            numbers = ", ".join(f"{value:g}" for value in recording.action[step - 1, agent].tolist())
            line.append(f"  reward {recording.reward[step - 1, agent]:+8.3f}  action {numbers}")
        lines.append(line)
    return lines


def world_frames(recording: Recording) -> tuple[Iterator[Array], int]:
    """Returns pictures of the world, uint8 [height, width, 3] of one size, and the number of steps per picture.

    Raises:
        UserError: this world has no pictures.
    """
    found = frames_of(recording)
    if found is not None:
        return found
    raise UserError(
        f"{recording.about.get('env', 'this environment')} has no pictures to make a video of; "
        'an environment in Gymnasium\'s API has them if its maker gives render_mode="rgb_array": '
        'gymnasium.make("…", render_mode="rgb_array")'
    )
