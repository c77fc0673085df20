"""Readings of the machine: CPU, memory, GPU, of this run's processes where that can be told apart.

    perf/cpu_utilization   percent of the cores allowed, this process and its workers, since the last reading
    perf/memory_gb         resident memory of this process and its workers (shared pages counted in each)
    perf/memory_percent    the same, of the memory allowed (cgroup limit or physical)
    perf/gpu_utilization   percent of time with a kernel running, as the driver last sampled it
    perf/gpu_memory_gb     used on the device, by anyone
    perf/gpu_power_w

Place in the flow: trainer.py reads at `run.monitor_interval`, the dashboard shows the last reading.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psutil

from metta_fast import hardware

if TYPE_CHECKING:
    import torch

GB = 1 << 30


class Monitor:
    """Call `read()` now and then; a reading takes about a millisecond."""

    def __init__(self, device: torch.device | None = None) -> None:
        """`device` None or not CUDA: no GPU figures."""
        self._process = psutil.Process()
        self._cores = hardware.allowed_cores()
        self._memory = hardware.memory_limit()
        self._workers: dict[int, psutil.Process] = {}
        self._busy = self._busy_seconds()
        self._time = time.monotonic()
        self._gpu = _nvml_handle(device)

    def read(self) -> dict[str, float]:
        """The readings above; names of figures that this machine cannot give are absent."""
        now, busy = time.monotonic(), self._busy_seconds()
        elapsed = max(now - self._time, 1e-3)
        row = {"perf/cpu_utilization": 100 * max(busy - self._busy, 0.0) / (elapsed * self._cores)}
        self._time, self._busy = now, busy
        memory = sum(self._each(lambda process: process.memory_info().rss))
        row["perf/memory_gb"] = memory / GB
        row["perf/memory_percent"] = 100 * memory / self._memory
        if self._gpu is not None:
            row |= self._read_gpu()
        return row

    def _busy_seconds(self) -> float:
        """CPU seconds of this process and its workers so far."""
        self._workers = {
            child.pid: self._workers.get(child.pid, child) for child in self._process.children(recursive=True)
        }
        return sum(self._each(lambda process: sum(process.cpu_times()[:2])))

    def _each(self, read: Any) -> list[float]:
        """`read` of this process and each worker that still lives."""
        values = []
        for process in (self._process, *self._workers.values()):
            try:
                values.append(read(process))
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # it ended between listing and reading
        return values

    def _read_gpu(self) -> dict[str, float]:
        import pynvml

        readings = {
            "perf/gpu_utilization": lambda: pynvml.nvmlDeviceGetUtilizationRates(self._gpu).gpu,
            "perf/gpu_memory_gb": lambda: pynvml.nvmlDeviceGetMemoryInfo(self._gpu).used / GB,
            "perf/gpu_power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(self._gpu) / 1000,
        }
        row = {}
        for name, read in readings.items():
            try:
                row[name] = float(read())
            except pynvml.NVMLError:
                continue  # this card or its driver does not tell it (MIG slices, some virtual GPUs)
        return row


def _nvml_handle(device: torch.device | None) -> Any:
    """NVML's handle of the torch device (their numbers may differ: matched by UUID), or None."""
    import torch

    if device is None or device.type != "cuda" or torch.version.hip:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        return pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
    except pynvml.NVMLError:
        return None
