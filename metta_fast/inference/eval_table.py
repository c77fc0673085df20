"""Shows the result of `metta-fast eval` as a table: each player's means, and the returns of single agents below.

Place in the flow: evaluate.py prints it.
"""

from __future__ import annotations

from typing import Any

from metta_fast.config.keys import shown
from metta_fast.inference.players import sampled_or_likely

OF_AGENTS = ("return/", "length/")
"""How names of single agents' results begin (envs/agents/lives.py)."""


def table(result: dict[str, Any]) -> str:
    """Returns the result as a table."""
    players, measure = result["players"], result["score"]
    how = sampled_or_likely(result["deterministic"])
    found = list(next(iter(players.values())))[:-1]
    columns = {name: max(len(name) + 2, 10) for name in found if not name.startswith(OF_AGENTS)}
    lines = [
        f"{result['checkpoint']}",
        f"{result['env']}: {result['episodes']} {result['unseen']} (seed {result['seed']}, unused in training), {how}; "
        "means per agent",
        *(f"with {path}={shown(value)}, unlike the run" for path, value in result["changes"].items()),
        "",
        f"{'':10}" + "".join(f"{name:>{width}}" for name, width in columns.items()) + f"  ± {measure}",
    ]
    for name, figures in players.items():
        cells = "".join(f"{_cell(figures.get(column)):>{width}}" for column, width in columns.items())
        lines.append(f"{name:10}{cells}  ± {_cell(figures['score_error'])}")
    lines.append("")
    agents = sorted(
        (name.removeprefix("return/") for name in found if name.startswith("return/")),
        key=lambda name: (len(name), name),
    )
    if agents:
        width = max(map(len, agents)) + 2
        lines.append(f"{'return of':{width}}" + "".join(f"{player:>12}" for player in players))
        for agent in agents:
            cells = "".join(f"{_cell(each.get(f'return/{agent}')):>12}" for each in players.values())
            lines.append(f"{agent:{width}}{cells}")
        lines.append("")
    lines += [f"{measure}: policy / {other} = {value:.2f}" for other, value in result["policy_to"].items()]
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
