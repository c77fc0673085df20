"""Tests advantages: cases computed by hand, and every kernel against the plain reference."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.algorithms.ppo.advantage import Inputs, compute_advantage
from metta_fast.algorithms.ppo.advantage._kernel import advantage_cpu
from metta_fast.algorithms.ppo.advantage.on_tensors import advantage_on_tensors
from metta_fast.algorithms.ppo.advantage.reference import advantage_reference
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf

GAMMA, LAMBDA = 0.5, 0.5
CONFIG = TrainerConfig(gamma=GAMMA, gae_lambda=LAMBDA)


def buffers(
    reward: list[float],
    value: list[float],
    *,
    terminal: tuple[int, ...] = (),
    truncation: tuple[int, ...] = (),
    masked: tuple[int, ...] = (),
    bptt: int | None = None,
) -> Buffers:
    """One agent's rollout; `terminal`, `truncation`, `masked` name rows."""
    spec = EnvSpec("own", 1, {"obs": Leaf((1,), "float32")}, ActionSpec("discrete", (2,)))
    b = Buffers.allocate(
        spec,
        num_agents=1,
        horizon=len(reward),
        bptt_horizon=bptt or len(reward),
        state_shape=(0, 0),
        device=torch.device("cpu"),
        debug=True,
    )
    b.reward[:, 0], b.value[:, 0] = torch.tensor(reward), torch.tensor(value)
    b.mask[:] = True
    b.terminal[list(terminal)] = True
    b.truncation[list(truncation)] = True
    b.mask[list(masked)] = False
    return b


def advantage(b: Buffers, config: TrainerConfig = CONFIG, has_final_obs: bool = True) -> list[float]:
    compute_advantage(b, config, has_final_obs)
    torch.testing.assert_close(b.returns, b.advantage + b.value[:-1])
    return b.advantage[:, 0].tolist()


def test_without_an_end_every_step_bootstraps_from_the_next_value() -> None:
    # δ1 = 2 + .5·8 − 4 = 2;  δ0 = 1 + .5·4 − 2 = 1;  A0 = 1 + .25·2
    assert advantage(buffers([1, 2], [2, 4, 8])) == [1.5, 2.0]


def test_a_time_limit_bootstraps_from_the_final_observation_and_cuts() -> None:
    """Row 1's action ends the episode; row 2 is the final observation (V = 8), row 3 the next one's first."""
    b = buffers([1, 2, 0, 100], [2, 4, 8, 1000, 0], truncation=(1,), masked=(2,))
    assert advantage(b)[:3] == [1.5, 2.0, 0.0]  # nothing of V = 1000 or reward 100


def test_a_terminal_does_not_bootstrap() -> None:
    b = buffers([1, 2, 0, 100], [2, 4, 8, 1000, 0], terminal=(1,), masked=(2,))
    assert advantage(b)[:3] == [1 + 2 - 2 + 0.25 * -2, -2.0, 0.0]


def test_terminated_and_truncated_together_do_not_bootstrap() -> None:
    b = buffers([1, 2, 0, 0], [2, 4, 8, 0, 0], terminal=(1,), truncation=(1,), masked=(2,))
    assert advantage(b)[1] == -2.0


def test_without_final_observations_a_truncation_does_not_bootstrap_but_still_cuts() -> None:
    """The environment resets in the same step: row 2 is the new episode's first."""
    b = buffers([1, 2, 100], [2, 4, 1000, 0], truncation=(1,))
    assert advantage(b, has_final_obs=False)[:2] == [1 + 2 - 2 + 0.25 * -2, -2.0]


def test_an_episode_that_ends_on_the_last_row() -> None:
    """Row T holds the final observation."""
    assert advantage(buffers([1, 2], [2, 4, 8], truncation=(1,))) == [1.5, 2.0]
    assert advantage(buffers([1, 2], [2, 4, 8], terminal=(1,))) == [0.5, -2.0]


def test_a_final_observation_on_row_0_takes_no_part() -> None:
    """The rollout before ended on its last row: this one starts with the masked row."""
    assert advantage(buffers([0, 2], [8, 4, 8], masked=(0,))) == [0.0, 2.0]


def test_the_last_step_of_a_segment_has_a_real_advantage() -> None:
    whole = advantage(buffers([1, 2, 3, 4], [1, 2, 3, 4, 5]))
    cut = advantage(buffers([1, 2, 3, 4], [1, 2, 3, 4, 5], bptt=2))
    assert cut == whole
    assert all(a != 0 for a in whole)
    assert whole[-1] == 4 + 0.5 * 5 - 4


def test_vtrace_clips_the_ratios() -> None:
    b = buffers([1, 2], [2, 4, 8])
    b.ratio[:, 0] = torch.tensor([0.5, 3.0])
    config = TrainerConfig(
        gamma=GAMMA, gae_lambda=LAMBDA, advantage="vtrace", vtrace_rho_clip=2.0, vtrace_c_clip=0.25
    )
    # A1 = min(2, 3)·2;  A0 = .5·1 + .25·min(.25, .5)·A1
    assert advantage(b, config) == [0.75, 4.0]


def test_a_time_limit_with_a_reset_in_the_same_step_bootstraps_from_its_own_value() -> None:
    """Row 1's action is cut; row 2 is the new episode's first. V of the final observation is 8, of row 2 1000."""
    b = buffers([1, 2, 100], [2, 4, 1000, 0], truncation=(1,))
    b.bootstrap = torch.full_like(b.reward, torch.nan)  # elsewhere it is not read
    b.bootstrap[1] = 8
    assert advantage(b)[:2] == [1.5, 2.0]
    b.terminal[1] = True
    assert advantage(b)[:2] == [1 + 2 - 2 + 0.25 * -2, -2.0]


def test_gae_does_not_read_the_ratios() -> None:
    b = buffers([1, 2], [2, 4, 8])
    b.ratio[:] = torch.nan
    assert advantage(b) == [1.5, 2.0]


@st.composite
def rollouts(draw: st.DrawFn) -> dict[str, np.ndarray | None]:
    """Any arrays of the right shapes, valid episodes or not; at least one live row ends by its time limit alone."""
    horizon, agents = draw(st.integers(1, 12)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    ends = draw(st.sampled_from([0.0, 0.2, 1.0]))

    def flags(rows: int, chance: float) -> np.ndarray:
        return rng.random((rows, agents)) < chance

    terminal, truncation, mask = flags(horizon, ends), flags(horizon, ends), flags(horizon + 1, 0.8)
    cut = int(rng.integers(horizon)), int(rng.integers(agents))
    terminal[cut], truncation[cut], mask[cut] = False, True, True
    return {
        "value": rng.normal(size=(horizon + 1, agents)).astype(np.float32),
        "reward": rng.normal(size=(horizon, agents)).astype(np.float32),
        "terminal": terminal,
        "truncation": truncation,
        "mask": mask,
        "ratio": rng.exponential(size=(horizon, agents)).astype(np.float32) if draw(st.booleans()) else None,
        "bootstrap": rng.normal(size=(horizon, agents)).astype(np.float32) if draw(st.booleans()) else None,
    }


SETTINGS = st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 3), st.floats(0, 3), st.booleans())


@given(rollouts(), SETTINGS)
def test_the_c_kernel_equals_the_reference(arrays: dict[str, np.ndarray], settings: tuple) -> None:
    out = np.full_like(arrays["reward"], np.nan), np.full_like(arrays["reward"], np.nan)
    inputs = Inputs(*arrays.values(), *settings)
    advantage_cpu(inputs, *out)
    for got, expected in zip(out, advantage_reference(inputs)):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@given(rollouts(), SETTINGS)
def test_torch_operations_equal_the_reference(arrays: dict[str, np.ndarray], settings: tuple) -> None:
    inputs = Inputs(*arrays.values(), *settings)
    out = torch.full(arrays["reward"].shape, torch.nan), torch.full(arrays["reward"].shape, torch.nan)
    advantage_on_tensors(inputs.with_arrays(torch.from_numpy), *out)
    for got, expected in zip(out, advantage_reference(inputs)):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5)


@given(rollouts(), SETTINGS)
def test_a_bootstrap_of_the_next_values_changes_no_bit(
    arrays: dict[str, np.ndarray], settings: tuple
) -> None:
    """In any form: `bootstrap` of V[t+1] is what stands without one."""
    plain = Inputs(*(arrays | {"bootstrap": None}).values(), *settings)
    given = plain._replace(bootstrap=arrays["value"][1:].copy())

    def c(inputs: Inputs) -> list[np.ndarray]:
        out = [np.full_like(arrays["reward"], np.nan) for _ in range(2)]
        advantage_cpu(inputs, *out)
        return out

    def tensors(inputs: Inputs) -> list[np.ndarray]:
        out = [torch.full(arrays["reward"].shape, torch.nan) for _ in range(2)]
        advantage_on_tensors(inputs.with_arrays(torch.from_numpy), *out)
        return [each.numpy() for each in out]

    for form in (c, tensors, advantage_reference):
        for one, other in zip(form(plain), form(given)):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("wrong", ["value", "terminal", "mask", "ratio", "bootstrap", "returns"])
def test_the_kernel_refuses_arrays_that_do_not_fit(wrong: str) -> None:
    shapes = {
        "value": (3, 4),
        "reward": (2, 4),
        "terminal": (2, 4),
        "truncation": (2, 4),
        "mask": (3, 4),
        "ratio": (2, 4),
        "bootstrap": (2, 4),
        "advantage": (2, 4),
        "returns": (2, 4),
    }
    shapes[wrong] = (1, 4)
    arrays = {
        name: np.zeros(shape, np.bool_ if name in ("terminal", "truncation", "mask") else np.float32)
        for name, shape in shapes.items()
    }
    *inputs, advantage, returns = arrays.values()
    with pytest.raises(ValueError, match=rf"{wrong} has shape \[1, 4\]"):
        advantage_cpu(Inputs(*inputs), advantage, returns)
