"""Leaves this folder's tests out where the package mettagrid is not installed (extra mettagrid)."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("mettagrid") else ["test_*.py"]
