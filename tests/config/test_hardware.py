"""Tests hardware detection in containers and under schedulers, and the choice of the profile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metta_fast.config.keys import Config, get
from metta_fast.machine import hardware
from metta_fast.machine.hardware import GIB, Gpu, Machine, allowed_cores, memory_free, memory_limit
from metta_fast.resolve import choose_profile as profiles
from metta_fast.resolve import smaller_sizes
from metta_fast.resolve.choose_profile import CARDS, choose_profile
from metta_fast.resolve.compose import compose
from metta_fast.resolve.config_files import CONFIGS
from metta_fast.resolve.fit_sizes import fit_sizes
from metta_fast.resolve.smaller_sizes import out_of_memory_advice


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """(proc, cgroup) of a machine with 64 cores and 100 GiB; tests add limits."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "meminfo", f"MemTotal:       {100 * GIB // 1024} kB\n")
    write(proc / "self/cgroup", "0::/\n")
    cgroup.mkdir()
    return proc, cgroup


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_limit(trees: tuple[Path, Path]) -> None:
    write(trees[1] / "cpu.max", "max 100000\n")
    write(trees[1] / "memory.max", "max\n")
    assert allowed_cores(*trees) == 64
    assert memory_limit(*trees) == 100 * GIB


def test_cgroup_v2_and_the_tightest_of_its_parents(trees: tuple[Path, Path]) -> None:
    proc, cgroup = trees
    write(proc / "self/cgroup", "0::/slice/job\n")
    write(cgroup / "slice/job/cpu.max", "max 100000\n")
    write(cgroup / "slice/cpu.max", "650000 100000\n")
    write(cgroup / "slice/job/memory.max", f"{8 * GIB}\n")
    write(cgroup / "slice/memory.max", f"{16 * GIB}\n")
    assert allowed_cores(*trees) == 6
    assert memory_limit(*trees) == 8 * GIB


def test_cgroup_v1_seen_from_inside_a_container(trees: tuple[Path, Path]) -> None:
    proc, cgroup = trees
    write(proc / "self/cgroup", "4:memory:/docker/a\n2:cpu,cpuacct:/docker/a\n")  # not visible inside
    write(cgroup / "cpu,cpuacct/cpu.cfs_quota_us", "200000\n")
    write(cgroup / "cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    write(cgroup / "memory/memory.limit_in_bytes", f"{4 * GIB}\n")
    assert allowed_cores(*trees) == 2
    assert memory_limit(*trees) == 4 * GIB


def test_cgroup_v1_without_a_limit(trees: tuple[Path, Path]) -> None:
    proc, cgroup = trees
    write(proc / "self/cgroup", "4:memory:/\n2:cpu:/\n")
    write(cgroup / "cpu/cpu.cfs_quota_us", "-1\n")
    write(cgroup / "cpu/cpu.cfs_period_us", "100000\n")
    write(cgroup / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert allowed_cores(*trees) == 64
    assert memory_limit(*trees) == 100 * GIB


def test_free_memory_is_what_the_tightest_cgroup_leaves(trees: tuple[Path, Path]) -> None:
    proc, cgroup = trees
    assert memory_free(*trees) is None
    write(proc / "meminfo", f"MemTotal: {100 * GIB // 1024} kB\nMemAvailable: {60 * GIB // 1024} kB\n")
    assert memory_free(*trees) == 60 * GIB
    write(proc / "self/cgroup", "0::/job\n")
    write(cgroup / "job/memory.max", f"{8 * GIB}\n")
    write(cgroup / "job/memory.current", f"{5 * GIB}\n")
    write(cgroup / "job/memory.stat", f"anon {3 * GIB}\nactive_file 4096\ninactive_file {2 * GIB}\n")
    assert memory_free(*trees) == 5 * GIB
    write(cgroup / "job/memory.current", f"{12 * GIB}\n")
    assert memory_free(*trees) == 0


def test_free_memory_under_cgroup_v1(trees: tuple[Path, Path]) -> None:
    proc, cgroup = trees
    write(proc / "meminfo", f"MemTotal: {100 * GIB // 1024} kB\nMemAvailable: {60 * GIB // 1024} kB\n")
    write(proc / "self/cgroup", "4:memory:/docker/a\n")
    write(cgroup / "memory/memory.limit_in_bytes", f"{4 * GIB}\n")
    write(cgroup / "memory/memory.usage_in_bytes", f"{3 * GIB}\n")
    write(cgroup / "memory/memory.stat", f"inactive_file 0\ntotal_inactive_file {GIB}\n")
    assert memory_free(*trees) == 2 * GIB


def test_less_than_one_core_is_one(trees: tuple[Path, Path]) -> None:
    write(trees[1] / "cpu.max", "50000 100000\n")
    assert allowed_cores(*trees) == 1


def test_affinity_counts(trees: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5}, raising=False)
    assert allowed_cores(*trees) == 2


def machine(*gpus: Gpu, cores: int = 16) -> Machine:
    return Machine(cores, 64, 100 * GIB, gpus, "cuda" if gpus else "cpu")


@pytest.mark.parametrize(("name", "memory", "profile", "batch", "minibatch"), [
    ("NVIDIA H100 80GB HBM3", 79, "h100", 262144, 32768),
    ("NVIDIA H200", 140, "h200", 262144, 32768),
    ("NVIDIA H200 NVL", 140, "h200", 262144, 32768),
    ("NVIDIA A40", 44.4, "a40", 131072, 16384),
    ("NVIDIA GH200 480GB", 95, "h100", 262144, 32768),
    ("NVIDIA A100-SXM4-40GB", 39.4, "a100", 262144, 32768),
    ("NVIDIA GeForce RTX 4090", 23.6, "rtx_4090", 262144, 32768),
    ("NVIDIA GeForce RTX 3090 Ti", 23.6, "rtx_3090", 131072, 16384),
    ("NVIDIA L40S", 45, "l40s", 262144, 32768),
    ("NVIDIA L4", 22.3, "l4", 131072, 16384),
    ("NVIDIA A10G", 22.3, "a10g", 131072, 16384),
    ("NVIDIA RTX A6000", 47.5, "a6000", 131072, 16384),
    ("AMD Radeon RX 7900 XTX", 24, "rx_7900_xtx", 262144, 32768),
    ("NVIDIA RTX 6000 Ada Generation", 47.5, "auto", 524288, 65536),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 15.7, "auto", 131072, 16384),
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.6, "auto", 65536, 8192),
    ("NVIDIA GeForce RTX 3060", 11.7, "auto", 131072, 16384),
    ("NVIDIA T4", 15, "auto", 131072, 16384),
    ("small", 3, "auto", 32768, 4096),
])  # fmt: skip
def test_the_profile_of_a_card(name: str, memory: float, profile: str, batch: int, minibatch: int) -> None:
    composed = compose(["hardware=auto"], machine=machine(Gpu(name, int(memory * GIB), (8, 6))))
    assert composed.groups["hardware"] == profile
    assert composed.config.trainer.batch_size == batch
    assert composed.config.trainer.minibatch_size == minibatch
    assert name in composed.notes[0]
    if profile == "auto":
        assert composed.origins["trainer.batch_size"].startswith("auto: ")
        assert "GiB of GPU memory" in composed.origins["trainer.batch_size"]


def test_every_profile_for_a_card_says_whether_it_was_measured_there() -> None:
    for profile in (*CARDS, "apple_silicon"):
        text = (CONFIGS / "hardware" / f"{profile}.yaml").read_text()
        assert profile in ("h100", "h200") or "not measured on" in " ".join(text.replace("#", "").split()), (
            profile
        )
        values = [line for line in text.splitlines() if line.startswith("  ") and ":" in line.split("#")[0]]
        assert all("#" in line for line in values), f"a value without its reason in {profile}"


def test_a_mac_without_a_card() -> None:
    mac = Machine(8, 8, 16 * GIB, system="Darwin arm64")
    assert choose_profile(mac).profile == "apple_silicon"


def test_without_a_card_and_a_typed_value_over_a_scaled_one() -> None:
    assert choose_profile(machine()).profile == "cpu"
    card = machine(Gpu("NVIDIA T4", 15 * GIB, (7, 5)))
    composed = compose(["hardware=auto", "trainer.batch_size=65536"], machine=card)
    assert composed.config.trainer.batch_size == 65536
    assert composed.origins["trainer.batch_size"] == "command line"


def test_the_auto_file_holds_the_sizes_that_are_scaled() -> None:
    composed = compose(["hardware=auto"], machine=machine(Gpu("any", profiles.PROFILE_MEMORY, (8, 0))))
    for path, value in profiles.PROFILE_SIZES.items():
        assert get(composed.config, path) == value


def test_bf16_by_capability() -> None:
    assert Gpu("a", 1, (8, 0)).bf16
    assert not Gpu("t", 1, (7, 5)).bf16
    assert Gpu("amd", 1, (0, 0), "amd").bf16


def test_this_machine_is_described() -> None:
    found = hardware.detect()
    assert 1 <= found.cores <= found.cores_total
    assert found.memory > GIB // 2
    assert f"{found.cores} cores" in found.describe()
    assert found.torch_build in ("cpu", "cuda", "hip")


def test_the_build_of_torch_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util
    from types import SimpleNamespace

    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    for text, build in (("cuda: Optional[str] = None\nhip: Optional[str] = None\n", ("cpu", 0)),
                        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", ("cuda", 12)),
                        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n", ("hip", 6)),
                        ("cuda = '13.0'\nhip = None\n", ("cuda", 13))):  # fmt: skip
        (tmp_path / "version.py").write_text("debug = False\n" + text)
        assert hardware.torch_build() == build
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert hardware.torch_build() == ("none", 0)


def test_out_of_memory_names_values_that_work() -> None:
    config = Config()
    config.env.num_envs, config.trainer.batch_size, config.trainer.minibatch_size = 512, 262144, 32768
    advice = out_of_memory_advice(config)
    assert "trainer.batch_size=131072 trainer.minibatch_size=16384" in advice
    assert "trainer.cpu_offload=true" in advice
    config.trainer.batch_size = 65536  # one segment for each agent: fewer agents is the only way
    words = smaller_sizes.smaller_sizes(config).split()
    assert words == ["env.num_envs=256", "trainer.batch_size=32768", "trainer.minibatch_size=16384"]
    for word in words:
        path, _, value = word.partition("=")
        setattr(getattr(config, path.split(".")[0]), path.split(".")[1], int(value))
    assert fit_sizes(config, lambda path: True) == []


def test_a_driver_that_the_installed_torch_is_too_new_for(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Gpu("NVIDIA L4", 22 * GIB, (8, 9))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(hardware, "torch_build", lambda: ("cuda", 13))
    for driver, gpus in (((12, 4), ()), ((13, 0), (card,)), ((13, 2), (card,)), ((0, 0), (card,))):
        monkeypatch.setattr(hardware, "_nvidia", lambda driver=driver: ([card], driver))
        found = hardware.detect()
        assert (found.gpus, found.driver) == (gpus, driver)
        assert len(found.notes) == (0 if gpus else 1)
    monkeypatch.setattr(hardware, "_nvidia", lambda: ([card], (12, 4)))
    assert hardware.detect().notes == (
        "NVIDIA's driver is for CUDA 12.4, but torch is built for CUDA 13: install driver 580 or newer, or "
        "torch's build for CUDA 12",
    )


def test_nvrtc_is_of_the_bindings_version(monkeypatch: pytest.MonkeyPatch) -> None:
    there: dict[str, str] = {}

    def version(package: str) -> str:
        if package not in there:
            raise hardware.metadata.PackageNotFoundError(package)
        return there[package]

    monkeypatch.setattr(hardware.metadata, "version", version)
    assert hardware.nvrtc_version() == 0
    for number, major in (("13.0.3", 13), ("12.9.4", 12)):
        there["cuda-bindings"] = number
        assert hardware.nvrtc_version() == major


def test_out_of_memory_with_environments_on_the_gpu() -> None:
    config = Config()
    config.env.device = "cuda"
    assert "trainer.cpu_offload=true env.device=cpu" in out_of_memory_advice(config)
