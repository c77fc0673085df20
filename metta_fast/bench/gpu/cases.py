"""Lists the configurations that `--gpu` and `--gpu-scale` measure, with explicit sizes, the same on every GPU.

SHAPES × VARIANTS   training end to end
SIMULATORS          the engine alone
scale_points()      one quantity varied at a time around the first shape
"""

from __future__ import annotations

from dataclasses import dataclass

BASE = ("hardware=auto", "env=grid_bench", "trainer.bptt_horizon=32")
PROFILE = ("env.num_envs=2048", "trainer.batch_size=262144", "trainer.minibatch_size=32768")
"""8192 agents, horizon 32, 8 optimizer steps per epoch."""
SEEDS = ("env.num_envs=512", "trainer.batch_size=262144", "trainer.minibatch_size=32768")
"""2048 agents, horizon 128."""

SHAPES: dict[str, tuple[str, ...]] = {
    "feed-forward, 8192 agents × 32": (*BASE, *PROFILE),
    "minGRU, 8192 agents × 32": (*BASE, *PROFILE, "policy=mingru"),
    "LSTM, 8192 agents × 32": (*BASE, *PROFILE, "policy=lstm"),
    "feed-forward, 2048 agents × 128": (*BASE, *SEEDS),
}
VARIANTS: dict[str, tuple[str, ...]] = {
    "env.device=cpu": ("env.device=cpu",),
    "trainer.cuda_graphs=false": ("trainer.cuda_graphs=false",),
    "trainer.compile=false trainer.cuda_graphs=false": ("trainer.compile=false", "trainer.cuda_graphs=false"),
}
"""Overrides that each shape is compared with."""

PARTS: dict[str, tuple[str, ...]] = {
    "feed-forward": SHAPES["feed-forward, 8192 agents × 32"],
    "minGRU": SHAPES["minGRU, 8192 agents × 32"],
}
"""Runs whose parts are measured."""


@dataclass(frozen=True)
class Simulator:
    """An environment stepped without a policy, with random actions."""

    recipe: str
    observation: str
    num_envs: int

    @property
    def name(self) -> str:
        return f"{self.recipe}, {self.observation}, {self.num_envs} envs"


SIMULATORS = tuple(
    Simulator(recipe, observation, envs)
    for recipe, observation in (("grid_bench", "compact"), ("grid_arena", "tokens"))
    for envs in (2048, 16384)
)


@dataclass(frozen=True)
class Point:
    """One configuration of the scale curve."""

    line: str
    """Name of the quantity that is varied."""
    value: str
    agents: int
    horizon: int = 32
    recipe: str = "grid_bench"
    agents_per_env: int = 4
    observation: str = "compact"

    @property
    def name(self) -> str:
        return f"{self.line} = {self.value}"

    @property
    def overrides(self) -> list[str]:
        """Overrides with 8 optimizer steps per epoch for every size."""
        batch = self.agents * self.horizon
        policy = ["policy=tokens"] if self.observation == "tokens" else []
        return [
            "hardware=auto",
            f"env={self.recipe}",
            *policy,
            f"env.observation={self.observation}",
            f"env.num_envs={self.agents // self.agents_per_env}",
            f"trainer.bptt_horizon={min(self.horizon, 32)}",
            f"trainer.batch_size={batch}",
            f"trainer.minibatch_size={batch // 8}",
        ]


AGENTS = 8192


def scale_points() -> list[Point]:
    """Returns the points of all lines; every line contains the profile's own values."""
    agents = [Point("agents", str(n), n) for n in (64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536)]
    an_env = [
        Point("agents an env", str(each), AGENTS // (8 * each) * 8 * each, recipe=recipe, agents_per_env=each)
        for recipe, each in (("grid_solo", 1), ("grid_bench", 4), ("grid_arena", 24))
    ]
    horizons = [Point("horizon", str(rows), AGENTS, horizon=rows) for rows in (16, 32, 64, 128)]
    kinds = [Point("observation", kind, AGENTS, observation=kind) for kind in ("compact", "dense", "tokens")]
    return [*agents, *an_env, *horizons, *kinds]
