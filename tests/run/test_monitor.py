"""Tests readings of the machine: NVML (a stand-in and the real one), the run's processes, the thread."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
import torch

from metta_fast.machine import nvml
from metta_fast.machine.monitor import Monitor, Processes
from tests.run.fake_nvml import (
    FakeNvml,
    NVMLError,
    NVMLError_DriverNotLoaded,
    NVMLError_LibraryNotFound,
    NVMLError_LibRmVersionMismatch,
    NVMLError_NotSupported,
)


def fake(monkeypatch, **settings) -> FakeNvml:
    module = FakeNvml(**settings)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


@pytest.fixture
def cuda(monkeypatch):
    """A stand-in for NVML, and a torch that has one CUDA device."""
    module = fake(monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1234"))
    monkeypatch.setattr(torch.version, "hip", None)
    return module


def wait_for(check, seconds=10.0):
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)
    return found


# ── cards ──


def test_a_card_tells_every_reading(monkeypatch):
    fake(monkeypatch).samples = [(0, 99), (100, 99), (200, 99)]
    cards, why = nvml.open_cards()
    sys.modules["pynvml"].samples += [(300, 10), (400, 50)]
    assert why == ""
    assert cards[0].name == "NVIDIA Test Card"
    assert cards[0].poll() == {
        "perf/gpu_utilization": 30.0,
        "perf/gpu_memory_mib": 2048.0,
        "perf/gpu_memory_percent": 25.0,
        "perf/gpu_power_w": 450.0,
        "perf/gpu_power_limit_w": 700.0,
        "perf/gpu_clock_sm_mhz": 1980.0,
        "perf/gpu_clock_memory_mhz": 2619.0,
        "perf/gpu_temperature_c": 61.0,
    }


def test_each_sample_counts_once_and_without_new_ones_the_present_value_is_taken(monkeypatch):
    module = fake(monkeypatch)
    module.kind = 0  # doubles
    card = nvml.open_cards()[0][0]
    module.samples += [(100, 10), (200, 20)]
    assert card.poll()["perf/gpu_utilization"] == 15
    assert card.poll()["perf/gpu_utilization"] == 42
    module.samples += [(300, 90)]
    assert card.poll()["perf/gpu_utilization"] == 90


def test_what_a_card_does_not_tell_is_left_out_and_not_asked_again(monkeypatch):
    module = fake(monkeypatch)
    card = nvml.open_cards()[0][0]
    module.refused = {name: NVMLError_NotSupported() for name in ("samples", "rates", "power", "clock")}
    module.refused["memory"] = NVMLError("lost")
    row = card.poll()
    assert sorted(row) == ["perf/gpu_power_limit_w", "perf/gpu_temperature_c"]
    module.calls.clear()
    module.refused = {}
    assert "perf/gpu_memory_mib" in card.poll()
    assert not {"power", "clock"} & set(module.calls)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NVMLError_DriverNotLoaded(), "not loaded"),
        (NVMLError_LibRmVersionMismatch(), "restart the machine"),
        (NVMLError("Unknown Error"), "Unknown Error"),
    ],
)
def test_why_there_is_no_card(monkeypatch, error, words):
    fake(monkeypatch, init_error=error)
    cards, why = nvml.open_cards()
    assert cards == []
    assert words in why


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ((), "has no NVIDIA driver"),
        (("/proc/driver/nvidia",), "NVIDIA_DRIVER_CAPABILITIES"),
        (("/dev/kfd",), "rocm-smi"),
    ],
)
def test_a_missing_driver_library(monkeypatch, there, words):
    fake(monkeypatch, init_error=NVMLError_LibraryNotFound())
    monkeypatch.setattr(nvml.Path, "exists", lambda path: str(path) in there)
    assert words in nvml.open_cards()[1]


def test_no_card_and_no_binding(monkeypatch):
    fake(monkeypatch, cards=0)
    assert nvml.open_cards() == ([], "the driver sees no NVIDIA card")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in nvml.open_cards()[1]
    monkeypatch.setattr(torch.version, "hip", None)
    assert "pip install nvidia-ml-py" in nvml.card_of(torch.device("cuda"))[1]
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert "rocm-smi" in nvml.card_of(torch.device("cuda"))[1]


# ── processes ──


def _burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_process_and_its_children_are_counted():
    processes = Processes(os.getpid())
    alone = processes.poll()
    worker = multiprocessing.get_context("spawn").Process(target=_burn, args=(30.0,))
    worker.start()
    try:
        both = Processes(os.getpid())

        def used():
            return psutil.Process(worker.pid).cpu_times().user

        before = used()
        wait_for(lambda: used() > before + 0.1)
        row = both.poll()
        assert row["perf/cpu_utilization"] > 0
        assert row["perf/memory_gb"] > alone["perf/memory_gb"]
        assert 0 < row["perf/memory_percent"] < 100
    finally:
        worker.kill()
        worker.join()
    assert both.poll()["perf/memory_gb"] < row["perf/memory_gb"]


def test_a_child_found_late_is_no_jump(monkeypatch):
    monkeypatch.setattr("metta_fast.machine.monitor.LIST_EVERY", 1)
    processes = Processes(os.getpid())
    old = SimpleNamespace(cpu_times=lambda: (1e6, 1e6), memory_info=lambda: SimpleNamespace(rss=1))
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: [_Hashable(old)])
    assert processes.poll()["perf/cpu_utilization"] < 1e4


class _Hashable:
    def __init__(self, other):
        self.cpu_times, self.memory_info = other.cpu_times, other.memory_info


def test_a_process_that_ended_is_told():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    processes = Processes(child.pid)
    processes.poll()
    child.communicate(b"\n")
    with pytest.raises(psutil.NoSuchProcess):
        processes.poll()


# ── the thread ──


def test_readings_come_without_a_gpu():
    monitor = Monitor(torch.device("cpu"), poll_s=0.01)
    try:
        row = wait_for(monitor.read)
        assert sorted(row) == ["perf/cpu_utilization", "perf/memory_gb", "perf/memory_percent"]
        assert 0.01 < row["perf/memory_gb"] < 100
    finally:
        monitor.close()
        monitor.close()
    assert not any(thread.name == "monitor" for thread in threading.enumerate())


def test_utilisation_is_the_mean_since_the_last_reading(cuda, monkeypatch):
    polls = iter([10.0, 30.0])
    more = threading.Event()

    def poll(card):
        value = next(polls, None)
        if value is None:
            more.wait(10)
            return {"perf/gpu_utilization": 80.0}
        return {"perf/gpu_utilization": value, "perf/gpu_power_w": value}

    monkeypatch.setattr(nvml.Card, "poll", poll)
    monkeypatch.setattr("metta_fast.machine.monitor.time", SimpleNamespace(monotonic=_ticks()))
    monitor = Monitor(torch.device("cuda"), poll_s=0.001)
    try:
        row = wait_for(lambda: (r := monitor.read()).get("perf/gpu_power_w") == 30.0 and r)
        assert row["perf/gpu_utilization"] in (20.0, 30.0)  # 30: a reading fell between the two
        assert monitor.read() == row  # nothing new: the same again
        more.set()
        wait_for(lambda: monitor.read()["perf/gpu_utilization"] == 80.0)
    finally:
        more.set()
        monitor.close()


def _ticks():
    """A clock that goes on by a second each time it is looked at."""
    count = iter(range(10**9))
    return lambda: float(next(count))


def test_a_slow_driver_does_not_hold_up_a_reading(cuda, monkeypatch):
    asked, go = threading.Event(), threading.Event()

    def poll(card):
        asked.set()
        go.wait(10)
        return {}

    monkeypatch.setattr(nvml.Card, "poll", poll)
    monitor = Monitor(torch.device("cuda"), poll_s=0.001)
    try:
        assert asked.wait(10)
        begun = time.perf_counter()
        for _ in range(100):
            monitor.read()
        assert time.perf_counter() - begun < 0.5
    finally:
        go.set()
        monitor.close()


def test_the_training_device_is_matched_by_uuid(cuda):
    card, why = nvml.card_of(torch.device("cuda"))
    assert (card._handle, why) == ("GPU-1234", "")


def test_a_gpu_without_readings_is_told_in_the_log(cuda, caplog):
    cuda.refused = {"uuid": NVMLError_DriverNotLoaded()}
    with caplog.at_level(logging.INFO, "metta_fast.machine.monitor"):
        monitor = Monitor(torch.device("cuda"), poll_s=0.001)
        row = wait_for(monitor.read)
        monitor.close()
    assert "not loaded" in caplog.text
    assert not any("gpu" in name for name in row)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_busy_card_reads_as_busy():
    device = torch.device("cuda")
    matrix = torch.randn(4096, 4096, device=device)
    monitor = Monitor(device, poll_s=0.5)
    try:
        end = time.monotonic() + 4
        slowest = 0.0
        while time.monotonic() < end:
            for _ in range(20):
                matrix @ matrix
            torch.cuda.synchronize()
            begun = time.perf_counter()
            row = monitor.read()
            slowest = max(slowest, time.perf_counter() - begun)
    finally:
        monitor.close()
    assert slowest < 0.05
    assert row["perf/gpu_utilization"] > 50
    assert row["perf/gpu_memory_mib"] > 64
    assert 0 < row["perf/gpu_memory_percent"] <= 100
    for name in ("power_w", "power_limit_w", "clock_sm_mhz", "clock_memory_mhz", "temperature_c"):
        assert row.get(f"perf/gpu_{name}", 1.0) > 0
