"""Steps robots on the GPU: MuJoCo Warp's physics, the task headers' rules (envs/robot/tasks/*.h) over its arrays.

    env=ant env.device=cuda

    Buffers' action[t] ─► engine.py: act ─► physics.py: frame_skip × step ─► engine.py: step ─► physics: forward
                       ─► engine.py: begin ─► Buffers' reward[t], terminal[t], truncation[t], row t+1
                       ─► draw/: pictures of cameras in row t+1, if they are observed

    packages.py   what has to be installed, and how to get it
    unsupported.py what MuJoCo Warp cannot step in a model
    presets.py    what a preset changes in the model
    room.py       constraints and contacts that a world has room for
    simulation.py Warp's model and data: a step, and what follows from a state; no torch
    physics.py    its arrays as torch tensors, its graphs
    compile/      its kernels, compiled side by side in several processes
    engine.py     the rules: kernels by NVRTC (gpu.h) on a GPU, the same in C (cpu.h) on Warp's CPU device
    draw/         pictures of the worlds' cameras
    vector.py     WarpVector: a DeviceVector (metta_fast/contracts/device_vector.py)

On Warp's CPU device it is slow, and there for tests.
"""
