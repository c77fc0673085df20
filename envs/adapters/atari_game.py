"""Steps a game of the Arcade Learning Environment (ALE) as agents learn it: small grey frames, several a step.

    action ─► `skip` frames of the emulator (sticky actions are its own) ─► the last two, pixel by pixel the brighter
           ─► 84 × 84, area means ─► observation [84, 84, 1] uint8; reward: the score's change

The emulator writes its grey screen into our arrays; nothing is coloured or copied before it is shrunk. Source: Mnih et
al. 2015 (Nature 518), methods; Machado et al. 2018 (arXiv 1709.06009) for sticky actions and whole games as episodes.

Place in the flow: atari.py adds it to what gymnasium.make gives, inside a user's own wrappers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.envs.adapters.area_resize import AreaResize


@dataclass(frozen=True)
class Preprocess:
    """Wraps an environment of ALE, made with frameskip=1, with these settings. cloudpickle takes it to workers."""

    skip: int = 4
    """Frames a step."""
    size: int = 84
    """Sides of the observation, in pixels."""
    max_frames: int = 108_000
    """Frames after which an episode is truncated: 30 minutes of the console."""
    noop_max: int = 0
    """An episode begins with 1 to so many frames without an action; 0: none."""
    episodic_life: bool = False
    """A lost life ends the episode, and the game goes on in the next one."""
    clip_reward: bool = False
    """The reward is its sign."""

    def __call__(self, env: Any) -> AtariGame:
        return AtariGame(env, self)


class AtariGame(gymnasium.Wrapper[Array, Any, Array, Any]):
    """See the module's docstring. `info["score"]` of a game's last step is its whole score, not clipped."""

    def __init__(self, env: Any, settings: Preprocess) -> None:
        super().__init__(env)
        self.settings = settings
        self.ale = env.unwrapped.ale
        self._actions = list(env.unwrapped._action_set)
        self.observation_space = gymnasium.spaces.Box(0, 255, (settings.size, settings.size, 1), np.uint8)
        self.max_steps = -(-settings.max_frames // settings.skip)
        screen = self.ale.getScreenDims()
        self._screen, self._before = (np.zeros(screen, np.uint8) for _ in range(2))
        self._resize = AreaResize(screen, (settings.size, settings.size))
        self._seed, self._games = 0, 0
        self._score, self._lives, self._goes_on = 0.0, 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, Any]:
        """Starts a game; after a lost life, goes on with it, by a frame without an action."""
        if seed is not None:
            self._seed, self._games, self._goes_on = seed, 0, False
        if self._goes_on:
            self._score += self.ale.act(self._actions[0])
        if not self._goes_on or self._is_over():
            self.env.reset(seed=seed, options=options)
            self._score = 0.0
            self._start()
        self._goes_on, self._lives = False, self.ale.lives()
        self.ale.getScreenGrayscale(self._screen)
        return self._observation(), {}

    def _start(self) -> None:
        """Waits some frames, if asked to: as many as the seed and the game's number say."""
        self._games += 1
        if self.settings.noop_max:
            draw = np.random.default_rng([self._seed % 2**63, self._games])
            for _ in range(int(draw.integers(1, self.settings.noop_max + 1))):
                self._score += self.ale.act(self._actions[0])
                if self._is_over():
                    self.ale.reset_game()
                    self._score = 0.0

    def _is_over(self) -> bool:
        return bool(self.ale.game_over())

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Runs `skip` frames, or less if the game ends."""
        ale, chosen, skip = self.ale, self._actions[int(action)], self.settings.skip
        reward, first = 0.0, skip - 2
        ends = False
        for frame in range(skip):
            reward += ale.act(chosen)
            ends = ale.game_over()
            if ends:
                break
            if frame == first:
                ale.getScreenGrayscale(self._before)
        ale.getScreenGrayscale(self._screen)
        if skip > 1 and not ends:
            np.maximum(self._screen, self._before, out=self._screen)
        self._score += reward
        terminated, truncated, info = False, False, {}
        if ends:
            terminated, truncated = bool(ale.game_over(with_truncation=False)), bool(ale.game_truncated())
            info["score"] = self._score
        elif self.settings.episodic_life:
            lives = ale.lives()
            terminated = self._goes_on = lives < self._lives
            self._lives = lives
        given = float(np.sign(reward)) if self.settings.clip_reward else float(reward)
        return self._observation(), given, terminated, truncated, info

    def _observation(self) -> Array:
        out = np.empty((self.settings.size, self.settings.size, 1), np.uint8)
        self._resize(self._screen, out[..., 0])
        return out

    # ---- the emulator's whole state ----

    def state_dict(self) -> dict[str, Any]:
        """Returns the emulator's state, its random numbers included, and the game's counts."""
        return {
            "ale": np.frombuffer(self.ale.cloneState(include_rng=True).serialize(), np.uint8),
            "seed": self._seed,
            "games": self._games,
            "score": self._score,
            "lives": self._lives,
            "goes_on": self._goes_on,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a state, of this game."""
        from ale_py import ALEState

        if not self.env.has_reset:  # type: ignore[attr-defined]
            self.env.reset(seed=0)
        self.ale.restoreState(ALEState(np.asarray(state["ale"], np.uint8).tobytes()))
        self._seed, self._games = int(state["seed"]), int(state["games"])
        self._score, self._lives = float(state["score"]), int(state["lives"])
        self._goes_on = bool(state["goes_on"])
