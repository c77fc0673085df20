"""Renders the cameras of all worlds of a simulation: `Context`. Knows nothing of torch.

context = Context(mjm, Drawn(("wrist",), 64, "rgb", 1.0), num_envs)     # within warp.ScopedDevice
context.draw(model, data)
context.write(0, out)                     # the first camera's picture of each world: [num_envs, size², 3] uint8
"""

from __future__ import annotations

from typing import Any, NamedTuple

CHANNELS = {"rgb": 3, "depth": 1, "rgbd": 4}
TREE_BYTES = 256
"""Of a geom in the tree that rays are sent through, while it is built: its nodes, and what sorts them."""


class Drawn(NamedTuple):
    """Says what is drawn of every world."""

    cameras: tuple[str, ...]
    """Names of cameras of the model."""
    size: int
    """Height and width in pixels."""
    kind: str
    """One of CHANNELS."""
    far: float
    """Metres that 255 stands for in a depth picture."""


class Context:
    """Holds MuJoCo Warp's render context on the current device.

    Args:
        mjm: mujoco.MjModel. num_envs: worlds.
    """

    def __init__(self, mjm: Any, drawn: Drawn, num_envs: int) -> None:
        import mujoco_warp

        self.drawn, self.num_envs = drawn, num_envs
        self._mjw = mujoco_warp
        self.rendered = mujoco_warp.create_render_context(
            mjm,
            nworld=num_envs,
            cam_res=(drawn.size, drawn.size),
            render_rgb=drawn.kind != "depth",
            render_depth=drawn.kind != "rgb",
            render_seg=False,
            use_shadows=False,
            cam_active=list(drawn.cameras),
            render_skybox=True,
        )

    def draw(self, model: Any, data: Any) -> None:
        """Renders all cameras from the places that are in `data`."""
        self._mjw.refit_bvh(model, data, self.rendered)
        self._mjw.render(model, data, self.rendered)

    def write(self, camera: int, out: Any) -> None:
        """Writes the pictures of a camera. out: warp.array [num_envs, size · size, channels] uint8."""
        import warp

        from metta_fast.envs.robot.warp.draw.pack import pack_pixels

        pixels = self.drawn.size**2
        colours = 0 if self.drawn.kind == "depth" else 3
        rendered = self.rendered
        warp.launch(
            pack_pixels,
            dim=(self.num_envs, pixels),
            inputs=[rendered.rgb_data, rendered.depth_data, camera * pixels, colours, self.drawn.far],
            outputs=[out],
        )


def tree_bytes(mjm: Any) -> int:
    """Returns the bytes of a world's geoms in the tree, which Warp's allocator does not see."""
    return TREE_BYTES * int(mjm.ngeom + mjm.nflexedge)
