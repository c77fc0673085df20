"""Soaks vectors and a training run while their processes are killed, stopped and continued at random.

python -m tests.vector.soak --minutes 60

__main__.py   starts both programs, samples them, prints a table, judges
vectors.py    makes, steps, saves, loads, closes and drops vectors
training.py   a run with vector.restart_workers, whose workers are killed from outside
judge.py      what counts as drift
"""
