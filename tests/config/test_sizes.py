"""Tests sizes: for any request, either everything divides or the message names values that work."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.config.keys import Config, config_from_dict, config_to_dict, get, put
from metta_fast.contracts.errors import UserError
from metta_fast.resolve.fit_sizes import divisors, fit_sizes

PATHS = ("env.num_envs", "env.agents_per_env", "trainer.bptt_horizon", "trainer.batch_size",
         "trainer.minibatch_size", "vector.async_factor", "trainer.gradient_accumulation")  # fmt: skip


def sized(values: dict[str, int]) -> Config:
    config = Config()
    for path, value in values.items():
        put(config, path, value)
    return config


def check(config: Config) -> None:
    """The contract of sizes."""
    trainer = config.trainer
    agents = config.env.num_envs * config.env.agents_per_env
    assert trainer.batch_size % agents == 0
    assert trainer.batch_size // agents % trainer.bptt_horizon == 0
    assert trainer.minibatch_size % trainer.bptt_horizon == 0
    assert trainer.batch_size % trainer.minibatch_size == 0
    assert trainer.batch_size // trainer.minibatch_size % trainer.gradient_accumulation == 0
    assert 1 <= config.vector.async_factor <= config.env.num_envs


def fit(config: Config, typed: set[str]) -> tuple[str, int] | None:
    """Fit in place; the first cure that the message names, if the values are refused."""
    try:
        changes = fit_sizes(config, lambda path: path in typed)
    except UserError as error:
        cure = re.search(r"; try ([\w.]+)=(\d+)", str(error)) or re.search(
            r"^(trainer\.\w+)=\d+ .*nearest that work: (\d+)", str(error)
        )
        return (cure[1], int(cure[2])) if cure else pytest.fail(f"no cure in: {error}")
    for change in changes:
        assert change.value == get(config, change.path)
    return None


@given(
    st.fixed_dictionaries({
        "env.num_envs": st.integers(1, 5000),
        "env.agents_per_env": st.sampled_from([1, 2, 4, 7, 24]),
        "trainer.bptt_horizon": st.sampled_from([1, 7, 16, 32, 64]),
        "trainer.batch_size": st.one_of(st.integers(1, 1 << 19), st.sampled_from([1 << 14, 1 << 18])),
        "trainer.minibatch_size": st.one_of(st.integers(1, 1 << 16), st.sampled_from([512, 1 << 15])),
        "vector.async_factor": st.integers(1, 16),
        "trainer.gradient_accumulation": st.integers(1, 8),
    }),
    st.sets(st.sampled_from(PATHS)),
)  # fmt: skip
def test_all_divides_or_the_message_has_a_cure(values: dict[str, int], typed: set[str]) -> None:
    config = sized(values)
    for _ in range(6):  # each mistake is told on its own; its first cure must end it
        before = config_from_dict(config_to_dict(config))
        cure = fit(config, typed)
        if cure is None:
            check(config)
            for path in typed:
                assert get(config, path) == get(before, path), "a typed value was changed"
            assert config.trainer.batch_size <= before.trainer.batch_size
            return
        config = before
        put(config, *cure)
        typed = typed | {cure[0]}
    raise AssertionError("the cures lead nowhere")


def test_the_guides_shapes() -> None:
    ultra_fast = sized({"env.num_envs": 512, "trainer.batch_size": 1 << 18, "trainer.minibatch_size": 1 << 15,
                        "vector.async_factor": 8})  # fmt: skip
    original = sized({"trainer.minibatch_size": 512, "trainer.bptt_horizon": 64})
    for config, horizon in ((ultra_fast, 128), (original, 64)):
        assert fit_sizes(config, lambda path: False) == []
        assert config.trainer.batch_size // (config.env.num_envs * 4) == horizon


CASES = [
    ({"trainer.batch_size": 100_000}, {"trainer.batch_size"},
     "trainer.batch_size=100000 is not a whole number of segments (64 envs × 4 agents × bptt_horizon "
     "32 = 8192 rows); try trainer.batch_size=98304 or 106496"),
    ({"trainer.batch_size": 4096}, {"trainer.batch_size"},
     "try trainer.batch_size=8192, or env.num_envs=32, or trainer.bptt_horizon=16"),
    ({"env.num_envs": 1000, "trainer.bptt_horizon": 64}, {"env.num_envs", "trainer.bptt_horizon"},
     "needs 256000 rows, more than trainer.batch_size=16384; try trainer.batch_size=256000, or "
     "env.num_envs=64, or trainer.bptt_horizon=4"),
    ({"env.num_envs": 10_000}, {"env.num_envs"}, "try trainer.batch_size=1280000, or env.num_envs=128"),
    ({"trainer.minibatch_size": 1000}, {"trainer.minibatch_size"}, "nearest that work: 512 or 1024"),
    ({"trainer.minibatch_size": 20_000}, {"trainer.minibatch_size"}, "nearest that work: 16384"),
    ({"trainer.minibatch_size": 8}, {"trainer.minibatch_size"}, "nearest that work: 32"),
    ({"trainer.gradient_accumulation": 3}, {"trainer.gradient_accumulation"},
     "does not divide the 4 minibatches of an epoch; nearest that work: 2 or 4"),
    ({"env.num_envs": 4, "vector.async_factor": 5}, {"env.num_envs", "vector.async_factor"},
     "vector.async_factor=5 blocks need as many environments, but env.num_envs=4; try "
     "vector.async_factor=4, or env.num_envs=5"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "typed", "message"), CASES)
def test_a_typed_value_that_does_not_fit(values: dict[str, int], typed: set[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        fit_sizes(sized(values), lambda path: path in typed)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("values", "typed", "fitted"), [
    ({"env.num_envs": 100}, {"env.num_envs"}, {"trainer.batch_size": 12800, "trainer.minibatch_size": 3200}),
    ({"env.num_envs": 1024}, {"env.num_envs"}, {"trainer.bptt_horizon": 4}),
    ({"env.agents_per_env": 24}, set(), {"env.num_envs": 20, "trainer.batch_size": 15360,
                                         "trainer.minibatch_size": 3840}),
    ({"env.num_envs": 1, "vector.async_factor": 8}, {"env.num_envs"}, {"vector.async_factor": 1}),
    ({"trainer.batch_size": 8192, "trainer.minibatch_size": 32768}, {"trainer.batch_size"},
     {"trainer.minibatch_size": 8192}),
])  # fmt: skip
def test_a_ceiling_is_rounded_down(values: dict[str, int], typed: set[str], fitted: dict[str, int]) -> None:
    config = sized(values)
    changes = fit_sizes(config, lambda path: path in typed)
    assert {change.path: change.value for change in changes} == fitted
    check(config)


def test_divisors() -> None:
    assert divisors(1) == [1]
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]


@pytest.mark.parametrize(
    "keys", [{}, {"update_epochs": 4}, {"recompute": "pass"}, {"recompute": "minibatch"}]
)
def test_vtrace_that_would_be_gae_is_refused_with_the_cure(keys: dict[str, int | str]) -> None:
    """An agent has one segment: none of its rows is read again after a step."""

    def given(**keys: int | str) -> Config:
        config = Config()
        config.env.num_envs, config.env.agents_per_env = 64, 1
        trainer = {"advantage": "vtrace", "batch_size": 2048, "minibatch_size": 512, "bptt_horizon": 32}
        for name, value in (trainer | keys).items():
            setattr(config.trainer, name, value)
        return config

    fit_sizes(given(minibatch_size=2048, recompute="pass", update_epochs=3), lambda _: True)
    with pytest.raises(UserError, match=r"1 minibatch a pass.*update_epochs=3"):
        fit_sizes(given(minibatch_size=2048, recompute="pass", update_epochs=2), lambda _: True)
    with pytest.raises(UserError, match=r"vtrace has no effect .*trainer\.recompute=pass .*update_epochs=2"):
        fit_sizes(given(**keys), lambda _: True)
    for cure in ("pass", "minibatch"):
        fit_sizes(given(recompute=cure, update_epochs=2), lambda _: True)
    fit_sizes(given(recompute="minibatch", bptt_horizon=16), lambda _: True)
