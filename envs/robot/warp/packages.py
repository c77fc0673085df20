"""Checks what robots on the GPU need: MuJoCo Warp and what fits it, in exact versions.

    problem()       None, or (what is wrong, what to type)

Nothing is imported: versions come from the packages' metadata.
"""

from __future__ import annotations

from importlib import metadata

from metta_fast.machine.installation import install_extra

VERSIONS = {"mujoco": "4.0.0", "mujoco-core": "4.0.0", "mujoco-warp": "4.0.0", "warp-lang": "1.19.0"}
"""Of packages that fit each other; pyproject.toml has the same (extra `gpu`)."""


def problem() -> tuple[str, str] | None:
    """Returns (why robots cannot step on the GPU, the cure), or None."""
    missing, wrong = [], []
    for name, wanted in VERSIONS.items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if found != wanted:
            wrong.append(f"{name} is {found}, expected {wanted}")
    if missing:
        names, verb = " and ".join(missing), "are" if len(missing) > 1 else "is"
        return f"robots on the GPU need MuJoCo Warp, and {names} {verb} not installed", install_extra("gpu")
    if wrong:
        return f"robots on the GPU need packages that fit each other: {', '.join(wrong)}", install_extra(
            "gpu"
        )
    return None
