"""Converts states to types that `torch.load(weights_only=True)` reads, and back: equal values of exactly equal types.

    as they are     None, bool, int, float, str, torch.Tensor, torch.Size
    containers      dict, OrderedDict, list, tuple
    tagged          numpy arrays and scalars, bytes, complex, large ints: {"__ndarray__": [dtype, shape, bytes]}, …

A subclass (an IntEnum, a namedtuple, a torch Parameter) is refused: it would come back as another type, or not at all.
Tensors and arrays are not copied, so encoding a state is a cheap check that it can be saved.

Place in the flow: checkpoint.py encodes and decodes; state_check.py encodes a run's first snapshots.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

ALLOWED = (
    "None, bool, int, float, complex, str, bytes, list, tuple, dict, OrderedDict, numpy arrays and scalars, "
    "torch tensors"
)
_NDARRAY, _BYTES, _SCALAR, _DICT = "__ndarray__", "__bytes__", "__scalar__", "__dict__"
_AS_THEY_ARE = frozenset({type(None), bool, float, str})
_INT_BITS = 2000
"""`weights_only` reads integers of at most 255 bytes."""
_MAX_DEPTH = 100
"""Deepest nesting: a container that contains itself is deeper."""
_TENSOR_DTYPES = frozenset(
    f"torch.{name}"
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    )
)


class UnsavableState(TypeError):
    """A state holds a value that cannot be stored exactly.

    Attributes:
        path: where, `.env[3].phase`.
        text: what it is.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path, self.text = "", text

    def __str__(self) -> str:
        return f"{self.path.removeprefix('.')}: {self.text}" if self.path else self.text


def encode(value: Any, path: str = "") -> Any:
    """Converts a state to types that `weights_only` can load, without copying tensors and contiguous arrays.

    Args:
        path: name of the state in the error.

    Raises:
        UnsavableState: a value is of another type than those above; the message names its path.
    """
    try:
        return _encode(value, 0)
    except UnsavableState as error:
        error.path = path + error.path
        raise


def decode(value: Any) -> Any:
    """Restores a state converted by `encode`; arrays use the memory of the tensors that hold their bytes."""
    kind = type(value)
    if kind is dict:
        if len(value) == 1:
            ((key, inside),) = value.items()
            read = _READERS.get(key)
            if read is not None:
                return read(inside)
        return {key: decode(entry) for key, entry in value.items()}
    if kind is OrderedDict:
        return OrderedDict((key, decode(entry)) for key, entry in value.items())
    if kind is list or kind is tuple:
        return kind(decode(entry) for entry in value)
    return value


def _encode(value: Any, depth: int) -> Any:
    import torch

    kind = type(value)
    if kind in _AS_THEY_ARE or kind is torch.Size:
        return value
    if kind is int:
        return value if value.bit_length() < _INT_BITS else {_SCALAR: ["int", hex(value)]}
    if depth > _MAX_DEPTH:
        raise UnsavableState(f"containers nested deeper than {_MAX_DEPTH}, or one that contains itself")
    if kind is dict or kind is OrderedDict:
        return _encode_dict(value, depth)
    if kind is list or kind is tuple:
        return kind([_inside(f"[{i}]", entry, depth) for i, entry in enumerate(value)])
    if kind is np.ndarray:
        return {_NDARRAY: _encode_array(value)}
    if kind is torch.Tensor:
        return _encode_tensor(value)
    if kind is bytes:
        return {_BYTES: torch.from_numpy(np.frombuffer(value, np.uint8).copy())}
    if kind is complex:
        return {_SCALAR: ["complex", [value.real, value.imag]]}
    if isinstance(value, np.generic) and kind is value.dtype.type:
        return {_SCALAR: _encode_scalar(value)}
    raise _unsavable(value)


def _inside(step: str, value: Any, depth: int) -> Any:
    """Encodes an entry of a container; `step` leads to it."""
    try:
        return _encode(value, depth + 1)
    except UnsavableState as error:
        error.path = step + error.path
        raise


def _encode_dict(value: dict[Any, Any], depth: int) -> dict[Any, Any]:
    for key in value:
        _check_key(key)
    entries = {key: _inside(_step(key), entry, depth) for key, entry in value.items()}
    if type(value) is OrderedDict:
        return OrderedDict(entries)
    looks_tagged = len(value) == 1 and next(iter(value)) in _READERS
    return {_DICT: entries} if looks_tagged else entries


def _step(key: Any) -> str:
    return f".{key}" if type(key) is str and key.isidentifier() else f"[{key!r}]"


def _check_key(key: Any) -> None:
    if type(key) is tuple:
        for part in key:
            _check_key(part)
    elif type(key) not in _AS_THEY_ARE and not (type(key) is int and key.bit_length() < _INT_BITS):
        raise UnsavableState(
            f"a key of type {type(key).__name__} ({_short(key)}) cannot be stored in a checkpoint: expected str, int, "
            "float, bool, None, or tuples of these"
        )


def _encode_array(value: np.ndarray) -> list[Any]:
    """Returns [dtype, shape, bytes or None for no bytes]."""
    import torch

    code = _dtype_code(value.dtype)
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8) if value.nbytes else None
    if flat is not None and not flat.flags.writeable:
        flat = flat.copy()  # torch takes no read-only memory
    return [code, list(value.shape), None if flat is None else torch.from_numpy(flat)]


def _dtype_code(dtype: np.dtype) -> Any:
    """Returns the dtype as a string, or as a list for a structured one."""
    code: Any = dtype.str
    _check_dtype(dtype)
    if dtype.names is not None:
        try:
            code = dtype.descr
        except ValueError:  # fields overlap
            code = None
    if code is None or _dtype(code) != dtype:
        raise UnsavableState(
            f"an array of dtype {dtype} cannot be stored in a checkpoint: give a structured dtype whose fields follow "
            "one another without gaps (numpy.lib.recfunctions.repack_fields), or a plain one"
        )
    return code


def _check_dtype(dtype: np.dtype) -> None:
    if dtype.hasobject:
        raise UnsavableState("arrays of Python objects cannot be stored in a checkpoint")
    base = dtype.base
    if base.names is not None:
        for name in base.names:
            _check_dtype(base[name])
    if base.char in "gG":
        raise UnsavableState(
            f"{base.name} cannot be stored in a checkpoint, because its format differs between machines: give float64"
        )
    plain = base.kind in "biufcmMSU" or (base.kind == "V" and base.type is np.void)
    if not plain or not base.itemsize:
        raise UnsavableState(f"an array of dtype {dtype} cannot be stored in a checkpoint")


def _dtype(code: Any) -> np.dtype:
    return np.dtype([tuple(field) for field in code] if isinstance(code, list) else code)


def _encode_scalar(value: np.generic) -> list[Any]:
    """Returns [kind, value] of a numpy scalar. Strings are apart: an array drops zeros at their ends."""
    if isinstance(value, np.str_):
        return ["str_", str.__str__(value)]
    if isinstance(value, np.bytes_):
        return ["bytes_", _encode(bytes(value), 0)]
    return ["numpy", _encode_array(np.asarray(value))]


def _encode_tensor(value: Tensor) -> Tensor:
    import torch

    dense = value.layout == torch.strided and not value.is_quantized and not value.is_meta
    if not dense or str(value.dtype) not in _TENSOR_DTYPES:
        raise UnsavableState(
            f"a tensor of {value.layout}, {value.dtype}, on {value.device} cannot be stored in a checkpoint: give a "
            "dense one of a common dtype on a CPU or GPU"
        )
    tensor = value.detach()  # without attributes that somebody has set
    own = tensor.numel() * tensor.element_size()
    return (
        tensor.clone() if tensor.untyped_storage().nbytes() > own else tensor
    )  # not the whole base of a view


def _unsavable(value: Any) -> UnsavableState:
    kind = type(value)
    bases = [base.__name__ for base in kind.__mro__[1:-1]]
    which = f"{kind.__name__} (a subclass of {bases[0]})" if bases else kind.__name__
    return UnsavableState(f"a value of type {which} cannot be stored in a checkpoint: {_short(value)}")


def _short(value: Any) -> str:
    """Returns the value's repr on one short line."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a user's __repr__
        return "?"
    return text if len(text) <= 60 else f"{text[:57]}…"


def _read_array(parts: Any) -> np.ndarray:
    code, shape, flat = parts
    if flat is None:
        return np.zeros(0, _dtype(code)).reshape(shape)
    array: np.ndarray = flat.numpy().view(_dtype(code)).reshape(shape)
    return array


def _read_scalar(parts: Any) -> Any:
    kind, value = parts
    return _SCALARS[kind](value)


_READERS: dict[Any, Callable[[Any], Any]] = {
    _NDARRAY: _read_array,
    _BYTES: lambda value: value.numpy().tobytes(),
    _SCALAR: _read_scalar,
    _DICT: lambda value: {key: decode(entry) for key, entry in value.items()},
}
"""How each tag's value is read."""
_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": lambda value: int(value, 16),
    "complex": lambda value: complex(*value),
    "str_": np.str_,
    "bytes_": lambda value: np.bytes_(decode(value)),
    "numpy": lambda value: _read_array(value)[()],
}
