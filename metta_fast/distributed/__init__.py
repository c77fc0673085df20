"""Trains one run with several processes, started by torchrun or by `distributed.processes=N`.

    place.py      who this process is: rank, world size, from torchrun's variables (no torch)
    group.py      the process group: start it, and every sum, broadcast and gather
    flat.py       all gradients side by side, summed in one collective
    moments.py    merges running moments
    share.py      a process's share of the global sizes

Sums over processes are taken in one place, `Group.sum_`. Without torchrun the group is one process, and each of these
does nothing. Nothing imported here imports torch before a group is started.
"""
