"""Benchmarks: training (two sides in turns), the simulator alone, the vector backends, a robot
against other libraries, all on the GPU.

main.py ─► train.py (side.py in two processes) │ env.py │ vector.py │ stepping.py (peers.py in processes)
                    └────────── rounds.py, load.py, machine.py ──────────► report.py: table, JSON
        └─► gpu.py (gpu_*.py): all on the GPU, each configuration in a process of its own

python benchmark_performance.py --help
"""
