"""Finds the sides of images, and checks trainer.random_shift by them. No torch here.

images(spec)     {"camera": (0, 1)}: leaf ─► the axes of its height and width
"""

from __future__ import annotations

from metta_fast.config.keys import Config
from metta_fast.config.policy_inputs import only, reads
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError


def images(spec: EnvSpec) -> dict[str, tuple[int, int]]:
    """Returns the axes of height and width of each leaf of kind image.

    Raises:
        UserError: an image of other axes than these and one for channels.
    """
    found = {}
    for name, leaf in spec.obs.items():
        if leaf.kind != "image":
            continue
        axes = [axis for axis in range(len(leaf.shape)) if axis != leaf.channel_axis]
        if len(axes) != 2:
            raise UserError(
                f"trainer.random_shift: observation {name!r} of {spec.name} ({'×'.join(map(str, leaf.shape))}) is of "
                "kind image, but its axes are not height, width and the one that Leaf.channel_axis names; give it "
                f"these, or another kind (of an environment in Python: env.leaf_kinds.{name}=flat)"
            )
        found[name] = axes[0], axes[1]
    return found


def check_shift(config: Config, spec: EnvSpec) -> str:
    """Returns a sentence for --explain on what trainer.random_shift does.

    Raises:
        UserError: the policy reads no image, or one of twice the shift or less.
    """
    pixels = config.trainer.random_shift
    seen = only(spec, dict.fromkeys(name for leaves in reads(config.policy, spec) for name in leaves))
    found = {name: axes for name, axes in images(spec).items() if name in seen.obs}
    if not found:
        others = [f"{name} ({leaf.kind.replace('vector', 'flat')})" for name, leaf in seen.obs.items()]
        raise UserError(
            f"trainer.random_shift={pixels} moves images, but the policy reads none of {spec.name}, only "
            f"{', '.join(others)}; remove it, or, if a leaf of an environment in Python holds pixels, give "
            "env.leaf_kinds.NAME=image"
        )
    for name, axes in found.items():
        shape = spec.obs[name].shape
        most = (min(shape[axis] for axis in axes) - 1) // 2
        if pixels > most:
            raise UserError(
                f"trainer.random_shift={pixels} is half of a side of the image {name!r} "
                f"({'×'.join(map(str, shape))}) or more; give at most {most}, better about a twentieth of a side"
            )
    return (
        f"trainer.random_shift={pixels}: in the update the policy reads each minibatch a second time, with "
        f"{', '.join(found)} moved by up to {pixels} pixels, and is to act and value alike; acting, evaluation and "
        "export see the images as they are"
    )
