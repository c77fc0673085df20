"""Benchmarks: training, the simulator alone, vector backends, other libraries, everything on the GPU.

    main.py ─► training/two_settings.py (side.py in two processes)     sizing/   batch and interval sizes
            │  stepping/ (peers.py in processes)                       gpu/      everything on the GPU
            └────────────► harness/: rounds, other_load, machine ─► report.py: table, JSON ─► charts/

python benchmark_performance.py --help
"""
