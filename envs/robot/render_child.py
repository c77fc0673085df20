"""Draws robots in a separate process: `python render_child.py MODEL HEIGHT WIDTH CAMERA`, started by render.py.

    stdin   physics states, float64 [n] each (MuJoCo's integration state)
    stdout  first the word "ready" on a line, then one picture per state, uint8 [HEIGHT, WIDTH, 3]

It does not import metta_fast. Graphics libraries are loaded here, so a crash ends only this process. The environment
variable MUJOCO_GL selects the library.
"""

from __future__ import annotations

import os
import sys
from typing import Any

SOFTWARE = ("llvmpipe", "softpipe", "swrast", "offscreen")
"""Parts of the names of drivers that draw on the CPU."""
OWN = ("track", "fixed")
"""Names of cameras of a model that show all of it, the first that there is before one of ours."""


class Drawing:
    """Holds a model, its data and a renderer."""

    def __init__(self, path: str, height: int, width: int, camera: str) -> None:
        import mujoco
        from OpenGL import GL

        self.mujoco: Any = mujoco
        self.model = model = mujoco.MjModel.from_xml_path(path)
        self.data = mujoco.MjData(model)
        view = model.vis.global_
        view.offheight, view.offwidth = max(view.offheight, height), max(view.offwidth, width)
        self.renderer = mujoco.Renderer(model, height, width)
        self.plain = any(word in GL.glGetString(GL.GL_RENDERER).decode().lower() for word in SOFTWARE)
        if self.plain:  # shadows, mirrors and smooth edges take a CPU ten times as long
            self.renderer.close()
            model.vis.quality.offsamples = 0
            self.renderer = mujoco.Renderer(model, height, width)
        found = [name for name in OWN if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, name) >= 0]
        self.camera: Any = camera or (found[0] if found else robot_camera(mujoco, model, self.data))

    def draw(self) -> Any:
        """Returns the picture of the current data, uint8 [height, width, 3]."""
        flags = self.mujoco.mjtRndFlag
        self.renderer.update_scene(self.data, self.camera)
        for flag in (flags.mjRND_SHADOW, flags.mjRND_REFLECTION):
            self.renderer.scene.flags[flag] = not self.plain
        return self.renderer.render()


def robot_camera(mujoco: Any, model: Any, data: Any) -> Any:
    """Makes a camera that a mouse can turn: it follows the robot, or shows all of a fixed robot."""
    camera = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    mujoco.mj_forward(model, data)
    track = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
    free = [model.jnt_bodyid[j] for j in range(model.njnt) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE]
    body = model.cam_bodyid[track] if track >= 0 else free[0] if free else 0
    shown = model.geom_bodyid > 0 if body else model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE
    if shown.any():  # the model's own extent includes floors
        places, sizes = data.geom_xpos[shown], model.geom_rbound[shown, None]
        low, high = (places - sizes).min(0), (places + sizes).max(0)
        camera.lookat, camera.distance = (low + high) / 2, ((high - low) ** 2).sum() ** 0.5
    if body:
        camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, body
    return camera


def main(path: str, height: int, width: int, camera: str) -> None:
    pictures = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries' output must not mix with the pictures
    import numpy as np

    drawing = Drawing(path, height, width, camera)
    mujoco, model, data = drawing.mujoco, drawing.model, drawing.data
    mujoco.mj_forward(model, data)
    drawing.draw()  # a broken graphics library fails at the first picture
    pictures.write(b"ready\n")
    pictures.flush()
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    size = 8 * mujoco.mj_stateSize(model, kind)
    while len(state := sys.stdin.buffer.read(size)) == size:
        mujoco.mj_setState(model, data, np.frombuffer(state), kind)
        mujoco.mj_forward(model, data)
        pictures.write(drawing.draw().tobytes())
        pictures.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
