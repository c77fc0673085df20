"""Shared test settings: hypothesis profiles (`--hypothesis-profile=thorough` for a long run).

`--part 1/2` runs every second file of tests, `--part 2/2` the others: run_tests.sh runs both at the same time.
MF_GC_STRESS=1 runs the garbage collector at nearly every allocation of tests/vector and tests/robot (.ci/sanitize).
"""

import gc
import os
import signal
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

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background, as the second part, deaf to Ctrl-C, and so would be all programs
    # that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", help="run the files of one of several parts, such as 1/2")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, parts = map(int, config.getoption("--part").split("/"))
    files = {path: number for number, path in enumerate(sorted({item.path for item in items}))}
    chosen = [item for item in items if files[item.path] % parts == part - 1]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if files[item.path] % parts != part - 1])
        items[:] = chosen


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
