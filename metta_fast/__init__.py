"""metta_fast: very fast reinforcement learning for grid and robot environments.

Data flows one way:  envs → vector → rollout → advantage → learner.

Importing this package imports nothing heavy: worker processes rely on it never pulling in torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metta_fast.callbacks import Callback as Callback
    from metta_fast.callbacks import CallbackError as CallbackError
    from metta_fast.errors import UserError as UserError
    from metta_fast.export.main import export_policy as export_policy
    from metta_fast.load import load_policy as load_policy
    from metta_fast.program import TrainResult as TrainResult
    from metta_fast.program import train as train

__version__ = "0.1.0"


_PLACES = {
    "Callback": "metta_fast.callbacks",
    "CallbackError": "metta_fast.callbacks",
    "TrainResult": "metta_fast.program",
    "UserError": "metta_fast.errors",
    "export_policy": "metta_fast.export.main",
    "load_policy": "metta_fast.load",
    "train": "metta_fast.program",
}
"""What a user's program calls, and the module that has it: imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
