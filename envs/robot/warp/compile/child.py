"""Compiles modules of Warp for a GPU that this process does not see: run by together.py.

stdin   a JSON line: {"how", "num_envs", "arch", "cache"}; then jobs: [name, block_dim, identifier, folder, file]
stdout  a line for each job: "done", or why not
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO


def main(jobs: IO[str], answers: IO[str]) -> None:
    """Answers jobs until there are no more."""
    first = json.loads(jobs.readline())
    import warp

    from metta_fast.envs.robot.warp.compile.modules import needed
    from metta_fast.envs.robot.warp.simulation import Simulation, how_from

    warp.config.log_level = warp.LOG_ERROR
    warp.config.kernel_cache_dir = first["cache"]
    warp.init()
    how = how_from(first["how"])
    # Some kernels are made for the number of worlds that a field of the model has.
    simulation = Simulation(how, 1, warp.get_device("cpu"), own_envs=first["num_envs"])
    modules = {module.name: module for module, _ in needed(simulation)}
    for line in jobs:
        print(_compile(modules, first["arch"], *json.loads(line)), file=answers, flush=True)


def _compile(
    modules: dict, arch: int, name: str, block_dim: int, identifier: str, folder: str, file: str
) -> str:
    module = modules.get(name)
    if module is None:
        return "the model does not need it on the CPU"
    here = module.get_module_identifier(block_dim)
    if here != identifier:
        return f"it is {here} here, expected {identifier}"
    module._compile(None, folder, file, arch, options=module.resolved_options[block_dim])
    return "done"


if __name__ == "__main__":
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    main(sys.stdin, lines)
