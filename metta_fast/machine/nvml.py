"""Reads NVIDIA GPUs through the driver (NVML, package nvidia-ml-py), without importing torch.

    perf/gpu_utilization        percent of the time with a kernel running, mean since the last poll
    perf/gpu_memory_mib         MiB of GPU memory used by all programs
    perf/gpu_memory_percent     the same in percent of the GPU's memory
    perf/gpu_power_w            watts drawn (the driver's mean over about a second)
    perf/gpu_power_limit_w      present limit of the power in watts
    perf/gpu_clock_sm_mhz       clock of the multiprocessors
    perf/gpu_clock_memory_mhz   clock of the memory
    perf/gpu_temperature_c      degrees Celsius

Place in the flow: monitor.py polls the training's GPU in its thread, watch/state.py every GPU of the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metta_fast.machine.installation import install_packages

if TYPE_CHECKING:
    import torch

MIB = 1 << 20

_SAMPLE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Field of NVML's value union, indexed by NVML_VALUE_TYPE_*."""


class Card:
    """Reads one GPU or one MIG slice. Not thread-safe."""

    def __init__(self, handle: Any) -> None:
        """Takes an NVML handle; the library must be initialised."""
        import pynvml

        self._nvml, self._handle = pynvml, handle
        name = pynvml.nvmlDeviceGetName(handle)
        self.name = name if isinstance(name, str) else name.decode()
        self._figures: dict[str, Callable[[Any], float]] = {
            "perf/gpu_power_w": lambda h: pynvml.nvmlDeviceGetPowerUsage(h) / 1000,
            "perf/gpu_power_limit_w": lambda h: pynvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
            "perf/gpu_clock_sm_mhz": lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM),
            "perf/gpu_clock_memory_mhz": lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_MEM),
            "perf/gpu_temperature_c": lambda h: pynvml.nvmlDeviceGetTemperature(
                h, pynvml.NVML_TEMPERATURE_GPU
            ),
        }
        self._newest = 0
        """Time stamp of the newest utilisation sample read, in the driver's microseconds."""
        self._samples()

    def poll(self) -> dict[str, float]:
        """Returns the readings above; those that the GPU or driver does not support (MIG, virtual GPUs) are absent.

        Takes up to some milliseconds, without holding the GIL.
        """
        row: dict[str, float] = {}
        busy = self._samples()
        try:
            if not busy:  # the driver keeps no samples, or has no new one: its value of the last second
                busy = [float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)]
            row["perf/gpu_utilization"] = sum(busy) / len(busy)
        except self._nvml.NVMLError:
            pass  # not supported for MIG slices
        try:
            memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
            row["perf/gpu_memory_mib"] = memory.used / MIB
            row["perf/gpu_memory_percent"] = 100 * memory.used / memory.total
        except self._nvml.NVMLError:
            pass
        for name, read in list(self._figures.items()):
            try:
                row[name] = float(read(self._handle))
            except self._nvml.NVMLError_NotSupported:
                del self._figures[name]
            except self._nvml.NVMLError:
                continue  # read again at the next poll
        return row

    def _samples(self) -> list[float]:
        """Returns the percentages that the driver sampled since the last call, several a second."""
        nvml = self._nvml
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(
                self._handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._newest
            )
        except nvml.NVMLError:
            return []
        new = [sample for sample in samples if sample.timeStamp > self._newest]
        self._newest = max((sample.timeStamp for sample in new), default=self._newest)
        return [float(getattr(sample.sampleValue, _SAMPLE_FIELDS[kind])) for sample in new]


def open_cards() -> tuple[list[Card], str]:
    """Returns all NVIDIA GPUs in the driver's order, and the reason if there are none."""
    try:
        import pynvml
    except ImportError:
        return [], f"no GPU readings: {install_packages('nvidia-ml-py')}"
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [Card(handle) for handle in handles], "" if handles else "the driver sees no NVIDIA card"
    except pynvml.NVMLError as error:
        return [], _why(error)


def card_of(device: torch.device) -> tuple[Card | None, str]:
    """Finds a CUDA device's GPU by UUID, since NVML numbers GPUs differently from torch.

    Returns:
        The GPU and "", or None and the reason.
    """
    import torch

    if torch.version.hip:
        return None, "no GPU readings: only NVIDIA GPUs are supported (use rocm-smi for AMD)"
    try:
        import pynvml
    except ImportError:
        return None, f"no GPU readings: {install_packages('nvidia-ml-py')}"
    try:
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        return Card(pynvml.nvmlDeviceGetHandleByUUID(uuid)), ""
    except pynvml.NVMLError as error:
        return None, _why(error)


def _why(error: Exception) -> str:
    """Explains why no GPU can be read, and how to fix it."""
    import pynvml

    if isinstance(error, pynvml.NVMLError_LibraryNotFound):
        if Path("/proc/driver/nvidia").exists() or Path("/dev/nvidiactl").exists():
            return (
                "no GPU readings: there is a GPU, but the driver's library libnvidia-ml.so.1 is missing; "
                "in a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            )
        amd = "; only NVIDIA GPUs are supported (use rocm-smi for AMD)" if Path("/dev/kfd").exists() else ""
        return f"no GPU: this machine has no NVIDIA driver{amd}"
    if isinstance(error, pynvml.NVMLError_DriverNotLoaded):
        return "no GPU readings: the NVIDIA driver is not loaded (modprobe nvidia, or restart the machine)"
    if isinstance(error, pynvml.NVMLError_LibRmVersionMismatch):
        return "no GPU readings: the NVIDIA driver was updated while in use; restart the machine"
    return f"no GPU readings: the NVIDIA driver reports '{error}'"
