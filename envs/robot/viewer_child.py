"""Shows a robot in a window: `python viewer_child.py MODEL SOCKET`, started by viewer.py.

It receives physics states, float64 [n] each (MuJoCo's integration state), from the socket (its number), and sends
"ready" once the window is open. It ends with its window or with the socket. Like render_child.py, it does not import
metta_fast.
"""

import select
import socket
import sys

WAIT_S = 1 / 60


def main(path: str, number: int) -> None:
    import mujoco
    import mujoco.viewer
    import numpy as np
    from render_child import robot_camera  # this script's folder comes first in sys.path

    states = socket.socket(fileno=number)
    model = mujoco.MjModel.from_xml_path(path)
    data = mujoco.MjData(model)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    size = 8 * mujoco.mj_stateSize(model, kind)
    camera = robot_camera(mujoco, model, data)
    with mujoco.viewer.launch_passive(model, data, show_left_ui=False, show_right_ui=False) as window:
        for name in ("type", "trackbodyid", "lookat", "distance"):
            setattr(window.cam, name, getattr(camera, name))
        states.send(b"ready")
        while window.is_running():
            state = b""
            while select.select([states], [], [], 0 if state else WAIT_S)[0]:  # only the last one is shown
                state = states.recv(size)
                if not state:
                    return
            if state:
                with window.lock():
                    mujoco.mj_setState(model, data, np.frombuffer(state), kind)
                    mujoco.mj_forward(model, data)
            window.sync()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
