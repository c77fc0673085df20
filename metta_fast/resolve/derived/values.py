"""Derives learning values for an environment that is not ours from what it is and from the budget.

The values found for our grids and robots are in configs/. A stranger's environment has none: its observations, actions,
episode length and class of step time, and `trainer.total_timesteps`, choose these. No rule depends on a name, and
nothing that is measured counts but the class of step time, so the same command is the same run.

    python -m tests.learn.defaults          # the tasks that these values must learn (docs/learning.md)

Place in the flow: resolve/ puts these between the detected profile and a typed one (docs/configuration.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from metta_fast.config.encoders import IMAGE, by_encoder
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import EnvSpec

STEP_COSTS = ("cheap", "medium", "slow")
"""Classes of the time of one environment's step: under 20 µs, under 1 ms, slower."""

Values = dict[str, tuple[Any, str]]
"""Derived values: key → (value, reason)."""


@dataclass(frozen=True)
class Facts:
    """Holds what the derived values depend on."""

    spec: EnvSpec
    """Observations and actions of one environment."""
    episode_length: int | None
    """Steps after which an episode is cut off; None: unknown."""
    step_cost: str
    """One of STEP_COSTS."""
    total_timesteps: int
    """The budget in agent steps."""
    core: str = "none"
    """The policy's recurrent core: none, lstm or mingru."""
    own_policy: bool = False
    """The network is the user's class, of which nothing is known."""
    frames: int = 1
    """policy.frame_stack; `spec` is of that many frames."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Values that the command line, a recipe or a typed profile has set, by key. What is derived for these keys has no
    effect; other values may depend on them."""

    @property
    def remembers(self) -> bool:
        """Returns whether the policy may be recurrent: it has a core, or is a user's own."""
        return self.core != "none" or self.own_policy

    @property
    def on_gpu(self) -> bool:
        """Returns whether the user wants environments on the GPU, which can step there."""
        return self.given.get("env.device") == "cuda" and (self.spec.gpu or self.spec.device_rows)


class Scale(NamedTuple):
    """Holds the sizes for budgets from `steps` on."""

    steps: int
    batch: int
    agents: int
    minibatch: int


SCALES = (
    Scale(0, 256, 4, 64),
    Scale(6_000, 512, 8, 64),
    Scale(25_000, 1024, 8, 64),
    Scale(50_000, 2048, 8, 64),
    Scale(500_000, 4096, 16, 64),
    Scale(1_500_000, 8192, 32, 64),
    Scale(8_000_000, 16384, 64, 128),
    Scale(30_000_000, 32768, 128, 512),
)
"""The rollout is 1/25 of a short budget and less of a long one: a policy that is updated often learns in fewer steps,
larger batches only save time."""
GPU_SCALES = (
    Scale(0, 8192, 256, 1024),
    Scale(3_000_000, 32768, 1024, 4096),
    Scale(20_000_000, 131072, 4096, 16384),
    Scale(100_000_000, 262144, 8192, 32768),
)
"""The same for environments on a GPU, where a thousand steps take hardly longer than one."""
LARGEST = {"cheap": 32768, "medium": 16384, "slow": 8192}
"""The largest batch by step cost: where stepping takes the time, small batches cost none."""
LEAST_HORIZON = 64
"""Rows that each of many agents gives in a rollout, unless the budget is then less than LEAST_UPDATES rollouts."""
LEAST_UPDATES = 16
ONE_BLOCK = 32
"""Agents up to which environments with a cheap step are one block."""
SEGMENT = 32
"""Rows of a segment of a recurrent core."""
SMALL = 512
"""Numbers observed, and rows of a minibatch, up to which a feed-forward network learns faster on the CPU."""

NEED_A_GPU = (
    "env.device",
    "trainer.precision",
    "trainer.compile",
    "trainer.cuda_graphs",
    "trainer.cpu_offload",
)
"""Keys that a user gives with a GPU in mind: trainer.device is then left to the machine."""


def derive(facts: Facts) -> Values:
    """Returns the derived values: key → (value, reason)."""
    sizes = _sizes(facts)
    rows = sizes["trainer.minibatch_size"][0]
    return {**sizes, **_learning(facts, rows), **_policy(facts), **_machine(facts, rows)}


def _sizes(facts: Facts) -> Values:
    total, each = facts.total_timesteps, facts.spec.agents_per_env
    if facts.on_gpu:
        scale = [s for s in GPU_SCALES if s.steps <= total][-1]
    else:
        scale = [s for s in SCALES if s.steps <= total and s.batch <= LARGEST[facts.step_cost]][-1]
    envs = facts.given.get("env.num_envs", max(1, scale.agents // each))
    segment = envs * each * (SEGMENT if facts.remembers or facts.on_gpu else 1)
    batch = max(scale.batch, min(envs * each * LEAST_HORIZON, total // LEAST_UPDATES), segment)
    where = "env.device=cuda" if facts.on_gpu else f"a {facts.step_cost} step"
    budget = f"trainer.total_timesteps={total} and {where}"
    values: Values = {
        "env.num_envs": (envs, f"{budget}: {scale.agents} agents"),
        "trainer.batch_size": (batch, f"{budget}: often updated, about {-(-total // batch)} times"),
    }
    if facts.on_gpu:
        values["trainer.minibatch_size"] = scale.minibatch, "env.device=cuda: few, large minibatches"
        values["trainer.bptt_horizon"] = SEGMENT, "env.device=cuda: whole segments are faster to gather"
        values["trainer.update_epochs"] = (
            2,
            "env.device=cuda: new rows are cheaper than more passes over old ones",
        )
        return values
    if facts.step_cost == "cheap" and envs * each <= ONE_BLOCK:
        values["vector.async_factor"] = (
            1,
            f"{envs * each} agents and a cheap step: a call of the policy for each block costs more than it hides",
        )
    if not facts.remembers:
        values["trainer.minibatch_size"] = _minibatch(facts, scale)
        values["trainer.bptt_horizon"] = 1, "without a recurrent core rows are shuffled one by one"
        values["trainer.update_epochs"] = (
            (3, "an image is read by convolutions: fewer passes, each takes long")
            if _images(facts)
            else (10, "several passes over few rows")
        )
    else:
        values["trainer.minibatch_size"] = max(256, scale.minibatch), f"several segments of {SEGMENT} rows"
        who = "a policy of your own may be recurrent" if facts.own_policy else f"policy.core={facts.core}"
        values["trainer.bptt_horizon"] = SEGMENT, f"{who}: how far back it learns to remember"
        values["trainer.update_epochs"] = 5, "several passes over few rows; a core's take longer"
    return values


def _minibatch(facts: Facts, scale: Scale) -> tuple[int, str]:
    if _in_c(facts):
        return scale.minibatch, "small minibatches learn most from a batch"
    if _only_float(facts.spec):
        return max(256, scale.minibatch), "a stack of frames is made by torch: fewer, larger minibatches"
    return max(
        256, scale.minibatch
    ), "observations that are not all float32 are decoded: fewer, larger minibatches"


def _learning(facts: Facts, minibatch: int) -> Values:
    values: Values = {
        "trainer.learning_rate": _learning_rate(facts, minibatch),
        "trainer.schedule": ("linear", "falls to 0 at the end of the budget"),
        "trainer.recompute": ("pass", "advantages use the value as learned in earlier passes"),
        "trainer.normalize_advantage": (False, "rewards are normalized instead (trainer.normalize_reward)"),
        "trainer.gamma": _gamma(facts.episode_length),
        "trainer.gae_lambda": (0.95, "usual"),
        "trainer.clip_coef": (0.2, "usual"),
        "trainer.vf_coef": (0.25, "values of normalized rewards"),
        "trainer.entropy_coef": (0.0, "normalized rewards are small beside a bonus"),
        "trainer.max_grad_norm": (0.5, "usual"),
    }
    if facts.spec.action.kind == "box":
        values["trainer.noise_color"] = _noise_color(facts.episode_length)
    return values


def _learning_rate(facts: Facts, minibatch: int) -> tuple[float, str]:
    if facts.on_gpu:
        rate = 1e-3 if minibatch <= 4096 else 2e-3 if minibatch <= 16384 else 3e-3
        return rate, f"minibatches of {minibatch} rows"
    if facts.remembers or not _in_c(facts):
        return 1e-3, "larger minibatches"
    return 3e-4, "small minibatches"


def _gamma(length: int | None) -> tuple[float, str]:
    """Returns the discount factor: far-sighted enough for a fifth of an episode."""
    if length is None:
        return 0.99, "the length of an episode is unknown"
    gamma = round(min(0.995, max(0.95, 1 - 5 / length)), 4)
    return gamma, f"1 - 5 / {length} steps of an episode, between 0.95 and 0.995"


def _noise_color(length: int | None) -> tuple[float, str]:
    if length is not None and length < 100:
        return 0.0, f"continuous actions, but episodes of only {length} steps"
    return 0.5, "continuous actions: noise that lasts finds rewards that need many similar actions"


def _policy(facts: Facts) -> Values:
    leaves = facts.spec.obs.values()
    inputs = _inputs(facts.spec)
    width = 64 if inputs <= 64 else 128 if inputs <= SMALL else 256
    seen = f"an observation of {inputs} numbers"
    values: Values = {
        "policy.hidden_size": (width, seen),
        "policy.activation": ("relu", "an image is read by convolutions")
        if _images(facts)
        else ("tanh", "small networks learn more steadily with it"),
        "policy.shared": (
            (True, "actions and value share the convolutions over the image")
            if _images(facts)
            else (False, "the value needs other features than the actions")
            if facts.core == "none"
            else (True, "actions and value share what the core remembers")
        ),
    }
    symbols = [name for name, leaf in facts.spec.obs.items() if leaf.kind == "symbols"]
    if symbols:
        values["policy.symbol_encoder"] = (
            "embedding",
            f"{', '.join(symbols)}: numbers that are names, not amounts",
        )
    if any(leaf.dtype.startswith("float") for leaf in leaves):
        values["policy.normalize_obs"] = True, "the scale of the observations is unknown"
    return values


def _machine(facts: Facts, minibatch: int) -> Values:
    """Returns what suits a small network on small minibatches, whatever the machine."""
    given = facts.given
    small = _inputs(facts.spec) <= SMALL and given.get("trainer.minibatch_size", minibatch) <= SMALL
    if facts.own_policy or facts.core != "none" or not small:
        return {}
    why = "a small network on small minibatches"
    values: Values = {
        "trainer.precision": ("fp32", f"{why} gains nothing from less"),
        "trainer.compile": (False, f"{why} gains less than compiling takes"),
        "trainer.torch_threads": (1, f"{why} cannot be shared"),
    }
    on_gpu = facts.spec.device_rows or any(path in given for path in NEED_A_GPU)
    if not on_gpu:
        values["trainer.device"] = "cpu", f"{why} learns faster there than on a GPU"
    return values


def _inputs(spec: EnvSpec) -> int:
    """Returns the numbers that one agent observes."""
    return sum(prod(leaf.shape) for leaf in spec.obs.values())


def _images(facts: Facts) -> bool:
    """Returns whether the built-in convolutions read an image."""
    convolved = not facts.own_policy and facts.given.get("policy.encoder") is None
    return convolved and IMAGE in by_encoder(PolicyConfig(), facts.spec)


def _in_c(facts: Facts) -> bool:
    """Returns whether the update in C, for which small minibatches cost little, reads the observation."""
    return facts.frames == 1 and _only_float(facts.spec)


def _only_float(spec: EnvSpec) -> bool:
    """Returns whether all leaves are float32."""
    return all(leaf.dtype == "float32" for leaf in spec.obs.values())
