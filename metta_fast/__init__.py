"""metta_fast: very fast reinforcement learning for grid and robot environments.

Data flows one way:  envs → vector → rollout → advantage → learner.

Importing this package imports nothing heavy: worker processes rely on it never pulling in torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metta_fast.contracts.errors import UserError as UserError
    from metta_fast.export.main import export_policy as export_policy
    from metta_fast.inference.loaded_policy import load_policy as load_policy
    from metta_fast.run.callbacks import Callback as Callback
    from metta_fast.run.callbacks import CallbackError as CallbackError
    from metta_fast.run.train_function import TrainResult as TrainResult
    from metta_fast.run.train_function import train as train

from metta_fast.version import __version__ as __version__

_PLACES = {
    "Callback": "metta_fast.run.callbacks",
    "CallbackError": "metta_fast.run.callbacks",
    "TrainResult": "metta_fast.run.train_function",
    "UserError": "metta_fast.contracts.errors",
    "export_policy": "metta_fast.export.main",
    "load_policy": "metta_fast.inference.loaded_policy",
    "train": "metta_fast.run.train_function",
}
"""What a user's program calls, and the module that has it: imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
