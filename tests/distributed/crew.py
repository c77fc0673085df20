"""Starts a few processes that form a group over gloo, each of which runs the same function of a test file.

    results = crew(2, "tests.distributed.work:several", tmp_path, "argument")

The results come back by rank. One launch costs two seconds for torch, so a function does several things.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

PATIENCE_S = 120


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def places(world: int, port: int | None = None) -> list[dict[str, str]]:
    """torchrun's variables for each process of one machine."""
    port = port or free_port()
    common = {
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    return [os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]


def crew(world: int, function: str, folder: Path, *arguments: Any) -> list[Any]:
    """What `function` ("module:name") returned in each of `world` processes, called with (group, *arguments)."""
    (folder / "arguments").write_bytes(pickle.dumps(arguments))
    command = [sys.executable, "-m", "tests.distributed.crew", function, str(folder)]
    running = [subprocess.Popen(command, env=env) for env in places(world)]
    try:
        codes = [one.wait(PATIENCE_S) for one in running]
    finally:
        for one in running:
            one.kill()
    assert codes == [0] * world
    return [pickle.loads((folder / f"result-{rank}").read_bytes()) for rank in range(world)]


def main() -> None:
    from metta_fast.distributed import group as groups
    from metta_fast.distributed.place import found

    function, folder = sys.argv[1], Path(sys.argv[2])
    module, _, name = function.partition(":")
    group = groups.start(found())
    result = getattr(import_module(module), name)(group, *pickle.loads((folder / "arguments").read_bytes()))
    (folder / f"result-{group.rank}").write_bytes(pickle.dumps(result))
    groups.end()


if __name__ == "__main__":
    main()
