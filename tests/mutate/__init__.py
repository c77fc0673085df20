"""Changes the code in small ways, one at a time, and counts how many the tests notice.

python -m tests.mutate                        # all changes; ends with 1 if fewer than 90% are found
python -m tests.mutate --only vector/ --jobs 2
python -m tests.mutate --list
"""

from __future__ import annotations

from tests.mutate import (
    changes_envs,
    changes_grid,
    changes_outside,
    changes_policy,
    changes_ppo,
    changes_puffer,
    changes_rollout,
    changes_run,
    changes_vector,
)
from tests.mutate.change import Change

CHANGES: list[Change] = [
    *changes_grid.CHANGES,
    *changes_envs.CHANGES,
    *changes_vector.CHANGES,
    *changes_rollout.CHANGES,
    *changes_ppo.CHANGES,
    *changes_puffer.CHANGES,
    *changes_policy.CHANGES,
    *changes_run.CHANGES,
    *changes_outside.CHANGES,
]
