"""Measures a robot on the GPU, by preset and number of robots, beside the CPU's robots of the same machine.

cases.py          --robot NAME: what is measured
command.py        measures it in turns ─► Report
child_program.py  ─► stepping.py (physics with random actions), bench/gpu/training.py, bench/stepping/steppers.py
table.py          the report
"""
