"""metta_fast: very fast reinforcement learning for grid and robot environments.

Data flows one way:  envs → vector → rollout → advantage → learner.

Every public name is `metta_fast.X`; X is imported when it is first used, so importing this package is cheap. Worker
processes rely on it never importing torch.
"""

from metta_fast.machine.run_imports import stay_out as _stay_out

_stay_out()  # before all other imports, also of `__future__`: they could come from a run's folder

from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from metta_fast.algorithms import hooks as hooks
    from metta_fast.algorithms.hooks import Context as Context
    from metta_fast.algorithms.hooks import Hooks as Hooks
    from metta_fast.algorithms.registry import AlgorithmKind as AlgorithmKind
    from metta_fast.compat.make_vec import make_vec as make_vec
    from metta_fast.config.key import key as key
    from metta_fast.config.keys import did_you_mean as did_you_mean
    from metta_fast.contracts.env import ActionSpec as ActionSpec
    from metta_fast.contracts.env import EnvBatch as EnvBatch
    from metta_fast.contracts.env import EnvError as EnvError
    from metta_fast.contracts.env import EnvFactory as EnvFactory
    from metta_fast.contracts.env import EnvSpec as EnvSpec
    from metta_fast.contracts.env import Leaf as Leaf
    from metta_fast.contracts.env import Rows as Rows
    from metta_fast.contracts.errors import UserError as UserError
    from metta_fast.contracts.recording import Recording as Recording
    from metta_fast.contracts.vector import VectorEnv as VectorEnv
    from metta_fast.contracts.vector import VectorError as VectorError
    from metta_fast.contracts.vector import WorkerError as WorkerError
    from metta_fast.envs import make_factory as make_factory
    from metta_fast.envs.batched.factory import BatchedEnvFactory as BatchedEnvFactory
    from metta_fast.envs.c_env.definition import CEnv as CEnv
    from metta_fast.envs.c_env.folder import folder_factory as folder_factory
    from metta_fast.envs.frame_recorder import FrameRecorder as FrameRecorder
    from metta_fast.envs.python_env import PythonEnvFactory as PythonEnvFactory
    from metta_fast.export.main import export_policy as export_policy
    from metta_fast.inference.evaluate_run import evaluate as evaluate
    from metta_fast.inference.loaded_policy import load_policy as load_policy
    from metta_fast.policy import Policy as Policy
    from metta_fast.policy import PolicyOutput as PolicyOutput
    from metta_fast.policy.plan import Plan as Plan
    from metta_fast.policy.plan import Trunk as Trunk
    from metta_fast.run.callbacks import Callback as Callback
    from metta_fast.run.callbacks import CallbackError as CallbackError
    from metta_fast.run.train_function import TrainResult as TrainResult
    from metta_fast.run.train_function import train as train
    from metta_fast.vector import make_vector as make_vector

from metta_fast.compat.old_paths import install as _install_old_paths  # noqa: E402
from metta_fast.machine.processor import check_processor as _check_processor  # noqa: E402
from metta_fast.version import __version__ as __version__  # noqa: E402

_PLACES = {
    "ActionSpec": "metta_fast.contracts.env",
    "AlgorithmKind": "metta_fast.algorithms.registry",
    "BatchedEnvFactory": "metta_fast.envs.batched.factory",
    "CEnv": "metta_fast.envs.c_env.definition",
    "Callback": "metta_fast.run.callbacks",
    "CallbackError": "metta_fast.run.callbacks",
    "Context": "metta_fast.algorithms.hooks",
    "EnvBatch": "metta_fast.contracts.env",
    "EnvError": "metta_fast.contracts.env",
    "EnvFactory": "metta_fast.contracts.env",
    "EnvSpec": "metta_fast.contracts.env",
    "FrameRecorder": "metta_fast.envs.frame_recorder",
    "Hooks": "metta_fast.algorithms.hooks",
    "Leaf": "metta_fast.contracts.env",
    "Plan": "metta_fast.policy.plan",
    "Policy": "metta_fast.policy",
    "PolicyOutput": "metta_fast.policy",
    "PythonEnvFactory": "metta_fast.envs.python_env",
    "Recording": "metta_fast.contracts.recording",
    "Rows": "metta_fast.contracts.env",
    "TrainResult": "metta_fast.run.train_function",
    "Trunk": "metta_fast.policy.plan",
    "UserError": "metta_fast.contracts.errors",
    "VectorEnv": "metta_fast.contracts.vector",
    "VectorError": "metta_fast.contracts.vector",
    "WorkerError": "metta_fast.contracts.vector",
    "did_you_mean": "metta_fast.config.keys",
    "evaluate": "metta_fast.inference.evaluate_run",
    "export_policy": "metta_fast.export.main",
    "folder_factory": "metta_fast.envs.c_env.folder",
    "key": "metta_fast.config.key",
    "load_policy": "metta_fast.inference.loaded_policy",
    "make_factory": "metta_fast.envs",
    "make_vec": "metta_fast.compat.make_vec",
    "make_vector": "metta_fast.vector",
    "train": "metta_fast.run.train_function",
}
"""Public names and the modules that define them."""
_MODULES = {"hooks": "metta_fast.algorithms.hooks"}
"""Public modules."""

_check_processor()
_install_old_paths()


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES, *_MODULES])
