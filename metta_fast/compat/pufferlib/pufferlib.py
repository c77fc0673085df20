"""Has the names of the package, for code that imports pufferlib.pufferlib."""

from metta_fast.compat.pufferlib import *  # noqa: F403
from metta_fast.compat.pufferlib import __all__ as __all__
