"""Provides a stand-in for the module pynvml: GPUs with readings and errors that a test chooses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_DriverNotLoaded(NVMLError):
    pass


class NVMLError_LibRmVersionMismatch(NVMLError):
    pass


class FakeNvml(SimpleNamespace):
    """Put it into sys.modules["pynvml"]."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_GPU_UTILIZATION_SAMPLES = 1, 2, 0, 1
    NVMLError = NVMLError
    NVMLError_NotSupported = NVMLError_NotSupported
    NVMLError_NotFound = NVMLError_NotFound
    NVMLError_LibraryNotFound = NVMLError_LibraryNotFound
    NVMLError_DriverNotLoaded = NVMLError_DriverNotLoaded
    NVMLError_LibRmVersionMismatch = NVMLError_LibRmVersionMismatch

    def __init__(self, *, cards: int = 1, init_error: Exception | None = None) -> None:
        super().__init__()
        self.cards, self.init_error = cards, init_error
        self.samples: list[tuple[int, int]] = []
        """(microseconds, percent)."""
        self.kind = 1
        self.refused: dict[str, Exception] = {}
        """Function → what it raises."""
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.refused:
            raise self.refused[name]

    def nvmlInit(self) -> None:
        if self.init_error:
            raise self.init_error

    def nvmlDeviceGetCount(self) -> int:
        return self.cards

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self._call("uuid")
        return uuid

    def nvmlDeviceGetName(self, handle: Any) -> bytes:
        return b"NVIDIA Test Card"

    def nvmlDeviceGetSamples(self, handle: Any, kind: int, since: int) -> Any:
        self._call("samples")
        field = {0: "dVal", 1: "uiVal"}[self.kind]
        new = [
            SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(**{field: value}))
            for at, value in self.samples
            if at > since or at == 0  # a ring that is not full yet has empty places
        ]
        if not new:
            raise NVMLError_NotFound()
        return self.kind, new

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        self._call("rates")
        return SimpleNamespace(gpu=42, memory=7)

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        self._call("memory")
        return SimpleNamespace(used=2 << 30, total=8 << 30)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        self._call("power")
        return 450_000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:
        self._call("limit")
        return 700_000

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        self._call("clock")
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        self._call("temperature")
        return 61
