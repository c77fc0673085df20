"""Derives values for environments that are not ours from their spec, their step time and the budget.

step_cost.py ──► values.py ──► defaults.py, which puts them among the other sources
"""
