"""Writes each format of an exported policy, and loads it again as a function of its inputs.

torchscript    torch.jit.load(FILE), in Python and C++ (libtorch); traced
torch_export   torch.export.load(FILE).module(), Python; AOTInductor compiles it
onnx           onnxruntime and others; needs the extra `export`
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from metta_fast.contracts.errors import UserError
from metta_fast.export.step import Step
from metta_fast.machine.installation import install_packages

METADATA = "metta_fast.json"
"""Name of the description inside the file: an extra file in torch's formats, a metadata property in ONNX."""
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")

Function = Callable[..., Sequence[Tensor]]
"""Maps the inputs, given one by one, to the outputs."""


@dataclass(frozen=True)
class Work:
    """Holds the module to write, with its example inputs and names."""

    step: Step
    example: tuple[Tensor, ...]
    """Example inputs for a few agents."""
    inputs: list[str]
    outputs: list[str]
    metadata: str

    def batch_axes(self) -> list[dict[int, object]]:
        """Returns the agents' axis of each input."""
        batch = torch.export.Dim("batch", min=1)
        return [{1 if name == "state" else 0: batch} for name in self.inputs]


@dataclass(frozen=True)
class Format:
    """One of FORMATS."""

    suffix: str
    write: Callable[[Work, Path], None]
    load: Callable[[Path], Function]
    packages: tuple[str, ...] = ()
    """Packages needed besides torch."""

    def check_packages(self, name: str) -> None:
        """Raises UserError if a package is missing."""
        missing = [package for package in self.packages if find_spec(package) is None]
        if missing:
            raise UserError(f"--format {name} needs {', '.join(missing)}: {install_packages(*missing)}")


def _write(path: Path, save: Callable[[io.BytesIO], None]) -> None:
    """Writes what `save` makes in memory: torch's writers hide why a file cannot be written."""
    made = io.BytesIO()
    save(made)
    path.write_bytes(made.getbuffer())


def write_torchscript(work: Work, path: Path) -> None:
    with torch.no_grad():
        traced = torch.jit.trace(work.step, work.example, check_trace=False)
    _write(path, lambda file: torch.jit.save(traced, file, _extra_files={METADATA: work.metadata}))


def load_torchscript(path: Path) -> Function:
    return torch.jit.load(str(path), map_location="cpu")


def exported_program(work: Work) -> torch.export.ExportedProgram:
    # The leaves are one variadic argument of Step.forward, and so one entry here.
    return torch.export.export(work.step, work.example, dynamic_shapes=(tuple(work.batch_axes()),))


def write_torch_export(work: Work, path: Path) -> None:
    program = exported_program(work)
    _write(path, lambda file: torch.export.save(program, file, extra_files={METADATA: work.metadata}))


def load_torch_export(path: Path) -> Function:
    return torch.export.load(str(path)).module()


def write_onnx(work: Work, path: Path) -> None:
    import onnx

    program = torch.onnx.export(
        exported_program(work),
        dynamo=True,
        verbose=False,
        input_names=work.inputs,
        output_names=work.outputs,
    )
    assert program is not None  # as no file is named
    model = program.model_proto
    _name_axis(model, "batch")
    onnx.helper.set_model_props(model, {METADATA: work.metadata})
    path.write_bytes(model.SerializeToString())


def _name_axis(model: object, name: str) -> None:
    """Names the only axis of variable length."""
    graph = model.graph  # type: ignore[attr-defined]
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = name


def load_onnx(path: Path) -> Function:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        given = {name: tensor.numpy() for name, tensor in zip(names, inputs)}
        return [torch.from_numpy(array) for array in session.run(None, given)]

    return run


@contextmanager
def quiet() -> Iterator[None]:
    """Silences the exporters' warnings about packages and functions that we do not use."""
    exporter = logging.getLogger("torch.onnx")
    before = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(before)


FORMATS = {
    "torchscript": Format(".pt", write_torchscript, load_torchscript),
    "torch_export": Format(".pt2", write_torch_export, load_torch_export),
    "onnx": Format(".onnx", write_onnx, load_onnx, ONNX_PACKAGES),
}


def choose_format(name: str | None, out: str | None) -> str:
    """Returns the requested format, or the format of the file's ending.

    Raises:
        UserError: an unknown format, or no format given and none known for the ending.
    """
    if name is not None:
        if name not in FORMATS:
            raise UserError(f"--format {name}: expected {', '.join(FORMATS)}")
        return name
    for known, form in FORMATS.items():
        if out is not None and out.endswith(form.suffix):
            return known
    endings = ", ".join(f"{form.suffix} ({known})" for known, form in FORMATS.items())
    raise UserError(
        f"--out {out}: its ending names no format; give --format, or one of {endings}"
        if out is not None
        else f"give --out FILE that ends in one of {endings}, or --format"
    )
