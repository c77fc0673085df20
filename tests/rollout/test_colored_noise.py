"""Checks that exploration noise is correlated as asked and stays standard normal."""

import pytest
import torch

from metta_fast.rollout.colored_noise import color


def noise(rows: int, beta: float) -> torch.Tensor:
    found = torch.randn(rows, 4000, 2, generator=torch.Generator().manual_seed(1))
    color(found, beta)
    return found


@pytest.mark.parametrize("rows", [2, 17, 256])
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_each_number_stays_standard_normal(rows: int, beta: float) -> None:
    found = noise(rows, beta)
    assert abs(float(found.mean())) < 0.05
    assert float(found.var(dim=(1, 2)).mean()) == pytest.approx(1, abs=0.02)
    assert float(found.pow(4).mean()) == pytest.approx(3, abs=0.1)


def test_neighbours_are_correlated_the_more_the_larger_beta() -> None:
    near = [float((found[1:] * found[:-1]).mean()) for found in (noise(256, beta) for beta in (0, 0.5, 1, 2))]
    assert abs(near[0]) < 0.01
    assert near[0] < near[1] < near[2] < near[3] < 1


def test_the_spectrum_falls_as_asked() -> None:
    power = torch.fft.rfft(noise(256, 1.0), dim=0).abs().square().mean(dim=(1, 2))
    assert float(power[8] / power[64]) == pytest.approx(8, rel=0.1)


def test_agents_stay_independent() -> None:
    found = noise(64, 1.0)
    assert abs(float((found[:, :2000] * found[:, 2000:]).mean())) < 0.02


def test_white_noise_is_untouched() -> None:
    plain = torch.randn(8, 3, 1, generator=torch.Generator().manual_seed(1))
    same = plain.clone()
    color(same, 0.0)
    assert torch.equal(plain, same)
