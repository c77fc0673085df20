"""Draws what robots' cameras see: `python camera_child.py JOB`, started by artist.py.

JOB is JSON: model, cameras (names), size, kind (rgb, depth, rgbd), far, envs, memory (a file's number), state, looks
(name of an array of the model → its length). The memory holds physics states, float64 [envs, state] (MuJoCo's
integration state), then those arrays, float32 [envs, lengths], then pictures, uint8
[envs, cameras, size, size, channels]. Each byte of stdin has all states drawn and is answered by one byte on stdout,
the first by "ready\\n" after the process has drawn once. It does not import metta_fast; MUJOCO_GL selects the library.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from typing import Any


class Drawing:
    """Holds a model with all that makes drawing small pictures cheap: no shadows, mirrors or smooth edges, and round
    things of few faces. Geometry and shadows take the time, not pixels."""

    def __init__(self, path: str, cameras: list[str], size: int, kind: str, far: float) -> None:
        import mujoco
        import numpy as np

        self.mujoco: Any = mujoco
        self.model = model = mujoco.MjModel.from_xml_path(path)
        self.data = mujoco.MjData(model)
        quality = model.vis.quality
        quality.offsamples = 0
        quality.numslices, quality.numstacks, quality.numquads = 12, 6, 2
        view = model.vis.global_
        view.offheight, view.offwidth = max(view.offheight, size), max(view.offwidth, size)
        self.context = mujoco.GLContext(size, size)
        self.context.make_current()
        self.gl = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self.gl)
        self.gl.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        self.scene = mujoco.MjvScene(model, maxgeom=1000)
        for flag in ("SHADOW", "REFLECTION", "HAZE", "FOG"):
            self.scene.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{flag}")] = False
        self.option, self.perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        self.cameras = []
        for name in cameras:
            camera = mujoco.MjvCamera()
            camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            camera.fixedcamid = model.camera(name).id
            self.cameras.append(camera)
        self.place = mujoco.MjrRect(0, 0, size, size)
        self.rgb = np.empty((size, size, 3), np.uint8) if kind != "depth" else None
        self.depth = np.empty((size, size), np.float32) if kind != "rgb" else None
        self.far = far
        self.np: Any = np

    def draw(self, pictures: Any) -> None:
        """Draws the current data for each camera: uint8 [cameras, size, size, channels]."""
        m, model, data = self.mujoco, self.model, self.data
        m.mj_kinematics(model, data)
        m.mj_comPos(model, data)
        m.mj_camlight(model, data)
        if model.ntendon:
            m.mj_tendon(model, data)
        for camera, picture in zip(self.cameras, pictures):
            m.mjv_updateScene(
                model, data, self.option, self.perturb, camera, m.mjtCatBit.mjCAT_ALL, self.scene
            )
            m.mjr_render(self.place, self.scene, self.gl)
            m.mjr_readPixels(self.rgb, self.depth, self.place, self.gl)
            if self.rgb is not None:
                picture[..., :3] = self.rgb[::-1]
            if self.depth is not None:
                picture[..., -1] = self.scaled(self.depth)[::-1]

    def scaled(self, depth: Any) -> Any:
        """Returns distances along the view, 0 … far as 0 … 255, of OpenGL's depth (1 near, 0 far)."""
        near, far = self.scene.camera[0].frustum_near, self.scene.camera[0].frustum_far
        metres = near * far / (near + depth * (far - near))
        return self.np.rint(self.np.clip(metres / self.far, 0, 1) * 255)


def main(job: dict[str, Any]) -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # libraries' output must not mix with the answers
    import numpy as np

    size, envs = job["size"], job["envs"]
    memory = mmap.mmap(job["memory"], 0)
    channels = {"rgb": 3, "depth": 1, "rgbd": 4}[job["kind"]]
    shape = envs, len(job["cameras"]), size, size, channels
    states = np.frombuffer(memory, np.float64, envs * job["state"]).reshape(envs, job["state"])
    width = sum(job["looks"].values())
    looks = np.frombuffer(memory, np.float32, envs * width, states.nbytes).reshape(envs, width)
    pictures = np.frombuffer(memory, np.uint8, offset=states.nbytes + looks.nbytes).reshape(shape)
    drawing = Drawing(job["model"], job["cameras"], size, job["kind"], job["far"])
    mujoco, model, data = drawing.mujoco, drawing.model, drawing.data
    own, first = [], 0
    for name, length in job["looks"].items():
        own.append((getattr(model, name).reshape(-1), slice(first, first + length)))
        first += length
    mujoco.mj_forward(model, data)
    drawing.draw(pictures[0])  # a broken graphics library fails at the first picture
    os.write(answers, b"ready\n")
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    while os.read(0, 1):
        for state, look, picture in zip(states, looks, pictures):
            for array, part in own:
                array[:] = look[part]
            mujoco.mj_setState(model, data, state, kind)
            drawing.draw(picture)
        os.write(answers, b"k")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
