"""Small programs, each of one fault that was found by reading or by a stranger; test_cases.py runs them.

    python -m tests.cases.load 4000000

A program ends with 0 if what it shows is right. Each runs in a process of its own: what went wrong was a hang, an
abort, or memory of another owner.
"""
