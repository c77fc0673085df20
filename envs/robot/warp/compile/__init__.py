"""Compiles the kernels of MuJoCo Warp that a model needs, side by side in several processes.

    modules.py     which of Warp's modules a simulation's launches need, found by a run that launches nothing
    together.py    the parent: starts the children, gives each one module after another, loads what they compiled
    child.py       the child: finds the same modules on Warp's CPU device, and compiles those it is given

One process compiles one after another, also with several threads: NVRTC holds a lock.
"""
