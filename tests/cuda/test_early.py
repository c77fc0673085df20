"""Tests work that is started while torch is imported: nothing depends on it, and nothing is done twice."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metta_fast.config.keys import Config
from metta_fast.contracts.gpu_program import Source
from metta_fast.resolve.resolve import Resolved
from metta_fast.run import early_start as early
from metta_fast.runtime.nvrtc import compile as compiling
from metta_fast.runtime.nvrtc.compile import compile_source


def gpu_config() -> Config:
    config = Config()
    config.env.device, config.env.factory, config.env.num_envs = "cuda", "grid", 2
    return config


def joined(threads: list[threading.Thread]) -> list[str]:
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    return [thread.name for thread in threads]


def test_nothing_begins_for_environments_on_the_cpu() -> None:
    config = gpu_config()
    config.env.device = "cpu"
    assert early.begin(Resolved(config, {})) == []


def test_without_a_card_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def no_card(number: int) -> int:
        raise RuntimeError("CUDA_ERROR_NO_DEVICE")

    monkeypatch.setattr(early, "_context", no_card)
    assert joined(early.begin(Resolved(gpu_config(), {}))) == ["environment", "triton"]
    assert capfd.readouterr() == ("", "")


def test_the_environments_kernels_are_compiled_for_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(early, "_context", lambda number: 90)
    monkeypatch.setattr(compiling, "compile_source", lambda source, arch: seen.append((source.name, arch)))
    joined(early.begin(Resolved(gpu_config(), {})))
    assert seen == [("grid", 90)]


def test_who_comes_while_it_compiles_waits_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path))
    compiled = SimpleNamespace(times=0)

    def slowly(source: Source, options: tuple[str, ...], binary: bool, log: Path) -> bytes:
        compiled.times += 1
        time.sleep(0.2)
        return b"code"

    monkeypatch.setattr(compiling, "_target", lambda arch: ((13, 0), arch, "sm"))
    monkeypatch.setattr(compiling, "_compile", slowly)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(compile_source(Source("x", "text"), 90)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    joined(threads)
    assert found == [b"code"] * 3
    assert compiled.times == 1
