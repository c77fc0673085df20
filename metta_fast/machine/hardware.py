"""Detects the cores, memory and GPUs that this process may use, respecting cgroup limits and affinity.

Used by hardware=auto (resolve/compose.py), by the `auto` values (resolve/resolve.py) and by `metta-fast doctor`.
NVIDIA GPUs are read through NVML and torch's version file, without importing torch. torch is imported only where
these do not suffice (ROCm, MIG slices, no NVML).
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

GIB = 1 << 30
PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
DRIVERS = {12: "525", 13: "580"}
"""Oldest NVIDIA driver for each CUDA major version."""


@dataclass(frozen=True)
class Gpu:
    """One GPU that torch may use."""

    name: str
    memory: int
    """Bytes."""
    capability: tuple[int, int] = (0, 0)
    """CUDA compute capability; (0, 0) on ROCm."""
    vendor: str = "nvidia"
    free: int | None = None
    """Bytes that no program used at the time of detection; None: unknown."""

    @property
    def bf16(self) -> bool:
        """Whether it supports bfloat16 arithmetic: NVIDIA Ampere or newer, and all AMD GPUs that ROCm supports."""
        return self.vendor == "amd" or self.capability >= (8, 0)


@dataclass(frozen=True)
class Machine:
    """The hardware and software found by `detect`."""

    cores: int
    """Cores this process may use: the smaller of affinity and cgroup quota, at least 1."""
    cores_total: int
    """Cores of the machine."""
    memory: int
    """Bytes of host memory this process may use."""
    gpus: tuple[Gpu, ...] = ()
    torch_build: str = "cpu"
    """Platform of the installed torch: cpu, cuda, hip, none (not installed)."""
    notes: tuple[str, ...] = field(default=())
    """Notes for the user, e.g. on a GPU that the installed torch cannot use."""
    driver: tuple[int, int] = (0, 0)
    """Newest CUDA version that the NVIDIA driver supports; (0, 0): unknown."""
    nvrtc: int = 0
    """CUDA major version of the NVRTC that cuda-bindings loads; 0: cuda-bindings is not installed."""
    system: str = ""
    """Operating system and processor: "Linux x86_64", "Darwin arm64"; "": unknown."""
    free: int | None = None
    """Bytes of host memory available to this process at the time of detection; None: unknown."""

    def describe(self) -> str:
        """Describes GPUs, cores and memory in one line."""
        cards = ", ".join(f"{g.name} ({g.memory / GIB:.0f} GiB)" for g in self.gpus) or "no GPU"
        cores = f"{self.cores} cores" + (
            f" allowed of {self.cores_total}" if self.cores < self.cores_total else ""
        )
        return f"{cards}, {cores}, {self.memory / GIB:.0f} GiB of memory"


def detect() -> Machine:
    """Detects this machine's hardware."""
    cards = _cards()
    return Machine(
        allowed_cores(),
        os.cpu_count() or 1,
        memory_limit(),
        cards.gpus,
        cards.torch_build,
        cards.notes,
        cards.driver,
        nvrtc_version(),
        f"{platform.system()} {platform.machine()}",
        memory_free(),
    )


def allowed_cores(proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Returns how many cores this process may use, by affinity and the CPU quota of its cgroups (v1 and v2).

    At least 1.
    """
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    for folder in _cgroup_folders("cpu", proc, cgroup):
        quota, _, period = _read(folder / "cpu.max").partition(" ")  # v2, "150000 100000" or "max 100000"
        quota = quota or _read(folder / "cpu.cfs_quota_us")  # v1, -1 for no limit
        period = period or _read(folder / "cpu.cfs_period_us")
        if _number(quota) > 0 and _number(period) > 0:
            cores = min(cores, _number(quota) / _number(period))
    return max(1, int(cores))


def memory_limit(proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Returns the bytes of host memory this process may use: the machine's, or the limit of its cgroups (v1 and v2)."""
    total = re.search(r"MemTotal:\s+(\d+) kB", _read(proc / "meminfo"))
    limit = int(total[1]) * 1024 if total else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _cgroup_folders("memory", proc, cgroup):
        for name in ("memory.max", "memory.limit_in_bytes"):
            value = _number(_read(folder / name))
            if value > 0:
                limit = min(limit, value)
    return limit


def memory_free(proc: Path = PROC, cgroup: Path = CGROUP) -> int | None:
    """Returns the bytes of host memory still available on the machine and within each cgroup's limit; None: unknown.

    Inactive file pages count as free, because the kernel reclaims them.
    """
    total = re.search(r"MemAvailable:\s+(\d+) kB", _read(proc / "meminfo"))
    if total is None:
        return None
    free = int(total[1]) * 1024
    for folder in _cgroup_folders("memory", proc, cgroup):
        for limit, usage in (("max", "current"), ("limit_in_bytes", "usage_in_bytes")):
            allowed = _number(_read(folder / f"memory.{limit}"))
            name = "inactive_file" if limit == "max" else "total_inactive_file"
            cache = re.search(rf"^{name} (\d+)", _read(folder / "memory.stat"), re.MULTILINE)
            if allowed > 0:
                used = _number(_read(folder / f"memory.{usage}")) - (int(cache[1]) if cache else 0)
                free = min(free, max(allowed - used, 0))
    return free


def _cgroup_folders(controller: str, proc: Path, cgroup: Path) -> Iterator[Path]:
    """Yields the folders of this process's cgroup and its ancestors, as far as a container shows them."""
    seen = set()
    for line in _read(proc / "self/cgroup").splitlines():
        number, names, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not names:
            roots = [cgroup, cgroup / "unified"]
        elif controller in names.split(","):
            roots = [cgroup / names, cgroup / controller]
        else:
            continue
        parts = [p for p in path.split("/") if p and p != ".."]
        for root in roots:
            for length in range(len(parts), -1, -1):
                folder = root.joinpath(*parts[:length])
                if folder not in seen and folder.is_dir():
                    seen.add(folder)
                    yield folder


def _read(path: Path) -> str:
    """Returns the file's text, or "" if it does not exist or may not be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> int:
    """Parses a whole number; returns 0 for `max`, -1 and anything else that is not a limit."""
    return int(text) if text.isdigit() else 0


def torch_build() -> tuple[str, int]:
    """Returns the platform of the installed torch (cpu, cuda, hip, none) and its major version (cpu, none: 0).

    Reads torch's version file without importing torch.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return "none", 0
    text = _read(Path(next(iter(spec.submodule_search_locations))) / "version.py")
    for build in ("hip", "cuda"):
        found = re.search(rf"^{build}\b[^=]*=\s*['\"](\d+)", text, re.MULTILINE)
        if found:
            return build, int(found[1])
    return "cpu", 0


def nvrtc_version() -> int:
    """Returns the CUDA major version of the NVRTC that cuda-bindings loads; 0: cuda-bindings is not installed."""
    try:
        return _number(metadata.version("cuda-bindings").split(".")[0])
    except metadata.PackageNotFoundError:
        return 0


@dataclass(frozen=True)
class _Cards:
    gpus: tuple[Gpu, ...]
    torch_build: str
    notes: tuple[str, ...] = ()
    driver: tuple[int, int] = (0, 0)


def _cards() -> _Cards:
    """Detects the GPUs that torch can use, torch's platform, and notes for the user."""
    build, version = torch_build()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if build == "hip":
        return _Cards(_gpus_by_torch("amd"), build)
    cards, driver = _nvidia()
    if build == "cuda":
        if driver[0] and driver[0] < version:
            note = (
                f"NVIDIA's driver is for CUDA {driver[0]}.{driver[1]}, but torch is built for CUDA {version}: "
                f"install driver {DRIVERS.get(version, 'of that version')} or newer, or torch's build for "
                f"CUDA {driver[0]}"
            )
            return _Cards((), build, (note,), driver)
        plain = visible is None or re.fullmatch(r"[0-9, ]*", visible)
        if cards is None or not plain:
            return _Cards(_gpus_by_torch("nvidia"), build, (), driver)
        if visible is not None:
            cards = [cards[int(i)] for i in visible.split(",") if i.strip() and int(i) < len(cards)]
        return _Cards(tuple(cards), build, (), driver)
    if cards:
        note = f"{cards[0].name} cannot be used: torch is built for {build}; install torch's CUDA build"
        return _Cards((), build, (note,), driver)
    return _Cards((), build)


def _nvidia() -> tuple[list[Gpu] | None, tuple[int, int]]:
    """Lists the NVIDIA GPUs through NVML, and the driver's CUDA version.

    Returns:
        [] if there is no driver; None where NVML cannot list the GPUs (MIG slices, nvidia-ml-py not installed).
    """
    if not Path("/proc/driver/nvidia").exists() and not any(Path("/dev").glob("nvidia[0-9]*")):
        return [], (0, 0)
    driver = (0, 0)
    try:
        import pynvml
    except ImportError:
        return None, driver
    try:
        pynvml.nvmlInit()
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()  # 13020 for 13.2
        driver = (number // 1000, number % 1000 // 10)
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            try:
                if pynvml.nvmlDeviceGetMigMode(handle)[0]:
                    return None, driver
            except pynvml.NVMLError_NotSupported:
                pass
            name = pynvml.nvmlDeviceGetName(handle)
            name = name if isinstance(name, str) else name.decode()
            capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            found.append(Gpu(name, int(memory.total), capability, free=int(memory.free)))
        return found, driver
    except pynvml.NVMLError:
        return None, driver


def _gpus_by_torch(vendor: str) -> tuple[Gpu, ...]:
    import torch

    if not torch.cuda.is_available():
        return ()
    found = []
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        capability = (card.major, card.minor) if vendor == "nvidia" else (0, 0)
        free = torch.cuda.mem_get_info(index)[0]
        found.append(Gpu(card.name, card.total_memory, capability, vendor, free))
    return tuple(found)
