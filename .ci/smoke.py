"""Checks an installed wheel, in its environment and outside the checkout: `python smoke.py CHECKOUT`.

Checks that the package is imported from the wheel, that configs, headers and the type marker are in it, and that a grid
world steps, and a robot if MuJoCo is installed.
"""

import importlib.util
import sys
from importlib import metadata
from pathlib import Path

import numpy as np

import metta_fast
from metta_fast.envs import make_factory
from metta_fast.resolve.compose import compose
from metta_fast.vector import make_vector

CHECKOUT = Path(sys.argv[1]).resolve()
PACKAGE = Path(metta_fast.__file__).resolve().parent


def main() -> None:
    assert CHECKOUT not in PACKAGE.parents, f"metta_fast was imported from the checkout: {PACKAGE}"
    assert metadata.version("metta_fast") == metta_fast.__version__
    wanted = {"py.typed"} | {
        str(file.relative_to(CHECKOUT)).removeprefix("metta_fast/")
        for pattern in ("configs/**/*.yaml", "envs/**/*.h", "metta_fast/episodes/page/*")
        for file in CHECKOUT.glob(pattern)
    }
    absent = sorted(name for name in wanted if not (PACKAGE / name).is_file())
    assert not absent, f"not in the wheel: {', '.join(absent)}"
    for requirement in metadata.requires("metta_fast") or []:
        if "extra ==" not in requirement:
            name = requirement.split(">")[0].split("<")[0].split("=")[0].split("!")[0].strip()
            metadata.version(name)
    step("grid", np.int32)
    robots = importlib.util.find_spec("mujoco") is not None
    if robots:
        step("ant", np.float32)
    stepped = "grid and robot stepped" if robots else "grid stepped (no MuJoCo: robots skipped)"
    print(f"wheel ok: {len(wanted)} data files, {stepped}, {PACKAGE}")


def step(env: str, dtype: type) -> None:
    """Steps recipe `env` ten times in two blocks, with every action 1."""
    config = compose(["hardware=cpu", f"env={env}", "env.num_envs=8"]).config
    vec = make_vector(
        make_factory(config.env),
        config.env.num_envs,
        backend="threads",
        num_blocks=2,
        num_workers=1,
        num_threads=1,
        worker_timeout_s=60.0,
    )
    try:
        vec.async_reset(0)
        for _ in range(10):
            block = vec.recv()
            vec.send(block, np.ones((block.size, vec.spec.action.width), dtype))
        vec.hold_all()
        assert any(leaf.any() for leaf in vec.rows.obs.values()), f"{env} gave empty observations"
    finally:
        vec.close()


if __name__ == "__main__":
    main()
