"""Makes batches of MettaGrid's environments from one MettaGridConfig (contracts/env.py: EnvFactory).

    factory = MettaGridFactory(make_arena(num_agents=24), name="arena")
    with metta_fast.make_vector(factory, 8) as vec: …

Observations are the package's tokens, uint8 [T, 3]: place (row << 4 | column; 254: no place), feature, value; 255 is
empty. Actions are one head, noop and moves; with vibes a second one, whose first choice leaves the vibe as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.envs.mettagrid.batch import MettaGridBatch

if TYPE_CHECKING:
    from mettagrid.config.mettagrid_config import MettaGridConfig

    from metta_fast.contracts.recording import Recorder


class MettaGridFactory:
    """Makes batches of environments of one configuration.

    Args:
        config: is not changed; every environment builds its own maps from it.
        limit_is_terminal: the time limit is a terminal; by default a truncation, from which the value bootstraps.

    Raises:
        UserError: the configuration has something that cannot be trained here.
    """

    def __init__(
        self, config: MettaGridConfig, *, name: str = "mettagrid", limit_is_terminal: bool = False
    ) -> None:
        from mettagrid.policy.policy_env_interface import PolicyEnvInterface

        game = config.game.model_copy(update={"episode_truncates": not limit_is_terminal})
        self.config = config.model_copy(update={"game": game})
        if game.obs.token_dim != 3:
            raise UserError(
                f"game.obs.token_dim={game.obs.token_dim}: MettaGrid's simulator writes tokens of 3 bytes"
            )
        about = PolicyEnvInterface.from_mg_cfg(self.config)
        self.action_names, self.vibe_names = tuple(about.action_names), tuple(about.vibe_action_names)
        if not self.action_names:
            raise UserError(
                "the configuration enables no action but vibes; enable game.actions.noop or game.actions.move"
            )
        ids = {action.name: number for number, action in enumerate(game.actions.actions())}
        self.vibes = np.array(
            [0, *(ids[name] for name in self.vibe_names)] if self.vibe_names else [], np.int32
        )
        """The simulator's numbers for the choices of the second head; the first changes nothing."""
        nvec = (len(self.action_names), *((len(self.vibes),) if self.vibe_names else ()))
        self.spec = EnvSpec(
            name=name,
            agents_per_env=game.num_agents,
            obs={"obs": Leaf(tuple(about.observation_shape), "uint8", "tokens")},
            action=ActionSpec("discrete", nvec),
            max_steps=game.max_steps,
            notes=True,
            info_stats=True,
        )

    def has_state(self) -> bool:
        return False

    def observations(self) -> tuple[str, ...]:
        return ("tokens",)

    def unseen(self) -> str:
        return "unseen maps"

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> MettaGridBatch:
        """`total_envs` has no effect: these environments are not staggered."""
        return MettaGridBatch(self, first_env, num_envs)

    def make_recorder(self, batch: MettaGridBatch) -> Recorder:
        """Returns a recorder of the batch's first environment, which has just been reset."""
        from metta_fast.envs.mettagrid.replay import MettaGridRecorder

        return MettaGridRecorder(batch.games[0])
