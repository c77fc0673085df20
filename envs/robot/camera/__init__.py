"""Observes robots through cameras of their model: pictures by MuJoCo's own renderer, of physics on the CPU or a GPU.
On a GPU, envs/robot/warp/draw/ draws them otherwise.

    env=lift_cube env.image.cameras=[wrist]

    action ─► RobotBatch (C) ─► states ─► camera_child.py, a process for each batch ─► pictures ─► rows

    factory.py        CameraFactory: a robot's factory with pictures in its spec
    batch.py          CameraBatch: steps robots, then has them drawn
    artist.py         Artist: the process that draws, and the memory shared with it
    camera_child.py   the process: OpenGL by EGL or OSMesa
    device_rows.py    OpenGLRows: draws robots that step on a GPU

Batches are stepped by threads (vector.backend=threads), which wait while their processes draw, side by side.
"""
