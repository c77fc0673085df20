"""Environments: the native contract, the grid world, and small examples. Importable as `metta_fast.envs`."""
