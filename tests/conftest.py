"""Shared test settings: hypothesis profiles (`--hypothesis-profile=thorough` for a long run).

MF_GC_STRESS=1 runs the garbage collector at nearly every allocation of tests/vector and tests/robot (.ci/sanitize).
"""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "fast", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fast")


@pytest.fixture(autouse=True, scope="session")
def users_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A configuration folder for the user's token, also of programs that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("METTA_FAST_TOKEN", raising=False)
        yield


@pytest.fixture(autouse=os.environ.get("MF_GC_STRESS") == "1")
def gc_stress(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collects the youngest objects at each allocation of one: what is freed too early is freed at once."""
    before = gc.get_threshold()
    if request.path.parent.name in ("vector", "robot"):
        gc.set_threshold(1, 20, 1000)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def exact_products() -> Iterator[None]:
    """No TF32, whatever another test or a training has set."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)
