"""Watches the mean return of the last 100 episodes: says when an environment is solved; ends the run there if asked.

    trainer.stop_at_return=475        or `solved`: the environment's own reward_threshold (Gymnasium's registry)

Place in the flow: trainer.py shows it each row of metrics, and its last one.
"""

from __future__ import annotations

from metta_fast.contracts.env import EnvSpec
from metta_fast.metrics.loggers import Row
from metta_fast.metrics.progress_text import short

EPISODES = 100
"""Episodes whose mean counts; fewer say nothing."""
KEY = "trainer.stop_at_return"


class Solved:
    """Watches one session of a run.

    Attributes:
        reached: the goals that the mean return has reached: the environment's threshold, the value to stop at.
    """

    def __init__(self, value: float | str | None, spec: EnvSpec) -> None:
        self._typed, self._threshold = value, spec.reward_threshold
        self._stop = spec.reward_threshold if value == "solved" else None if value is None else float(value)
        self._episodes = 0.0
        self._said = False
        self.reached: list[float] = []

    def see(self, row: Row, steps: int) -> tuple[str | None, str | None]:
        """Takes a row of metrics.

        Returns:
            A line to log once, when the environment is solved, and why the run should stop.
        """
        self._episodes += row.get("env/episodes", 0.0)
        mean = row.get("env/return_100")
        if mean is None or self._episodes < EPISODES:
            return None, None
        said = stop = None
        goals = {goal for goal in (self._threshold, self._stop) if goal is not None and mean >= goal}
        self.reached += sorted(goals.difference(self.reached))
        if self._threshold is not None and mean >= self._threshold and not self._said:
            self._said = True
            said = (
                f"solved at step {steps}: the mean return of the last {EPISODES} episodes is {short(mean)}, the "
                f"environment's threshold {short(self._threshold)}"
            )
            if self._stop is None:
                said += f" ({KEY}=solved ends a run there)"
        if self._stop is not None and mean >= self._stop:
            stop = (
                f"the mean return of the last {EPISODES} episodes is {short(mean)}, and {KEY}={self._typed}"
                + (f" ({short(self._stop)})" if self._typed == "solved" else "")
            )
        return said, stop


def no_episode(row: Row, steps: int, agents: int, limit: int) -> str | None:
    """Returns a line for a run that ends without a return, or None.

    Args:
        row: the newest value of each name.
        steps: agent steps of this session.
        agents: how many step together.
        limit: the environment's time limit; 0: unknown.
    """
    if "env/return" in row:
        return None
    each = steps // max(agents, 1)
    longest = f", which has a time limit of {limit}" if limit else ""
    return (
        f"no episode has ended, so that there is no env/return: each environment took {each} steps{longest}. Train for "
        "longer (trainer.total_timesteps), with fewer environments (env.num_envs), or give it a shorter time limit"
    )
