"""Benchmarks: training (two sides in turns), the simulator alone, the vector backends.

main.py ─► train.py (side.py in two processes) │ env.py │ vector.py
                    └────────── rounds.py, load.py, machine.py ──────────► report.py: table, JSON

python benchmark_performance.py --help
"""
