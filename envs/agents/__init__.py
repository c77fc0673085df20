"""Environments of several agents: the rows of their lives, and the forms in which an environment gives them."""
