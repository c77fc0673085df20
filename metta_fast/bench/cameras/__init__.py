"""Measures robots that see pictures: physics, pictures, policy and training, by renderer, size and number of robots.

cases.py          --camera NAME: what is measured
command.py        measures it in turns ─► Report
child_program.py  ─► collecting.py (a run), bench/robots/stepping.py and bench/stepping/steppers.py (random actions)
table.py          the report, with shares of the time
"""
