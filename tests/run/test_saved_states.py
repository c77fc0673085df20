"""Tests what a checkpoint can hold: equal values of equal types come back; anything else is refused with its path."""

from __future__ import annotations

import collections
import enum
import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from metta_fast.contracts.errors import UserError
from metta_fast.storage import checkpoint
from metta_fast.storage.encoding import UnsavableState, decode, encode
from metta_fast.storage.state_check import check


def back(value: Any) -> Any:
    """The value as a checkpoint gives it back."""
    stream = io.BytesIO()
    torch.save(encode(value), stream)
    stream.seek(0)
    return decode(torch.load(stream, weights_only=True))


def same(a: Any, b: Any) -> bool:
    """Equal values of equal types; NaN equals NaN, and 0.0 differs from -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items())
        return len(a) == len(b) and all(same(x, y) for x, y in pairs)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, np.generic) and not isinstance(a, (str, bytes)):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return bool(a == b)


DTYPES = st.one_of(
    hnp.scalar_dtypes().filter(lambda dtype: dtype.char not in "gG"),
    hnp.byte_string_dtypes(),
    hnp.unicode_string_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
    hnp.array_dtypes(hnp.integer_dtypes() | hnp.floating_dtypes(sizes=(16, 32, 64)), max_size=3),
)
TORCH = st.sampled_from(
    [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float32, torch.complex64]
)
KEYS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
    | st.sampled_from(["__ndarray__", "__bytes__", "__scalar__", "__dict__"]),
    lambda part: st.lists(part, max_size=2).map(tuple),
    max_leaves=3,
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(max_size=5),
    st.binary(max_size=5), st.integers(-(1 << 3000), 1 << 3000),
    hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0, max_side=3)),
    DTYPES.filter(lambda dtype: dtype.kind not in "SUV").flatmap(hnp.from_dtype).filter(
        lambda value: isinstance(value, np.generic)
    ),
    st.text(max_size=4).map(np.str_), st.binary(max_size=4).map(np.bytes_),
    TORCH.map(lambda dtype: torch.arange(6).reshape(2, 3).to(dtype)),
)  # fmt: skip
STATES = st.recursive(
    LEAVES,
    lambda part: (
        st.lists(part, max_size=3)
        | st.lists(part, max_size=3).map(tuple)
        | st.dictionaries(KEYS, part, max_size=3)
        | st.dictionaries(st.text(max_size=3), part, max_size=2).map(collections.OrderedDict)
    ),
    max_leaves=6,
)


@given(STATES)
def test_a_state_comes_back_with_its_types_or_is_refused(value):
    try:
        encode(value)
    except UnsavableState:
        return
    assert same(back(value), value)


class Phase(enum.IntEnum):
    WALK = 1


class Text(str):
    pass


Pair = collections.namedtuple("Pair", "x y")

SAVED = {
    "a numpy scalar": np.float32(0.1),
    "a numpy bool": np.bool_(True),
    "a date": np.datetime64("2024-01-01"),
    "no date": np.datetime64("NaT", "D"),
    "a time span": np.timedelta64(3, "s"),
    "numpy's str": np.str_("left\0"),
    "numpy's bytes": np.bytes_(b"a\0"),
    "a structured scalar": np.zeros(2, [("x", "i4"), ("y", "f8", (2,))])[0],
    "complex": complex(1, -0.0),
    "a large int": 1 << 2039,
    "a lone surrogate": "\ud800",
    "other bytes first": np.arange(3, dtype=">f4"),
    "read-only": np.broadcast_to(np.float32(2), (2, 2)),
    "every second": np.arange(6)[::2],
    "by columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "no axis": np.array(3),
    "a dict like an array": {"__ndarray__": 5},
    "a dict like bytes": {"__bytes__": [1]},
    "a dict like an escaped one": {"__dict__": {"__dict__": {}}},
    "an ordered dict like an array": collections.OrderedDict(__ndarray__=1),
    "keys of several types": {1: 1, "1": 2, None: 3, 2.5: 4, (1, ("a", False)): 5},
    "a conjugate": torch.tensor([1 + 2j]).conj(),
    "a shape": torch.Size([2, 3]),
    "a generator": np.random.default_rng(1).bit_generator.state,
}


@pytest.mark.parametrize("name", SAVED)
def test_it_is_saved_exactly(name):
    assert same(back(SAVED[name]), SAVED[name])
    assert same(back([{"a": SAVED[name]}]), [{"a": SAVED[name]}])


def itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


REFUSED = {
    "an IntEnum": (Phase.WALK, r"Phase \(a subclass of IntEnum\)"),
    "a str subclass": (Text("x"), r"Text \(a subclass of str\)"),
    "a float subclass": (type("F", (float,), {})(1), r"F \(a subclass of float\)"),
    "a numpy subclass": (type("G", (np.float64,), {})(1), r"G \(a subclass of float64\)"),
    "a dict subclass": (collections.defaultdict(int), "defaultdict"),
    "a named tuple": (Pair(1, 2), r"Pair \(a subclass of tuple\)"),
    "a longdouble": (np.longdouble(1), "differs between machines"),
    "longdoubles": (np.zeros(2, np.longdouble), "differs between machines"),
    "longdoubles inside": (np.zeros(2, [("x", np.longdouble)]), "differs between machines"),
    "gaps": (np.zeros(2, np.dtype([("x", "u1"), ("y", "f8")], align=True)), "repack_fields"),
    "variable strings": (np.array(["a"], np.dtypes.StringDType()), "cannot be stored"),
    "a masked array": (np.ma.masked_array([1, 2], [0, 1]), r"MaskedArray \(a subclass of ndarray\)"),
    "a bytearray": (bytearray(b"a"), "bytearray"),
    "a Parameter": (torch.nn.Parameter(torch.ones(1)), r"Parameter \(a subclass of"),
    "a sparse tensor": (torch.eye(2).to_sparse(), "sparse"),
    "a meta tensor": (torch.ones(2, device="meta"), "on meta"),
    "a list that contains itself": (itself(), "contains itself"),
    "a bytes key": ({b"a": 1}, "a key of type bytes"),
    "a numpy key": ({np.int64(1): 1}, "a key of type int64"),
    "an enum key": ({(1, Phase.WALK): 1}, "a key of type Phase"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_its_path(name):
    value, words = REFUSED[name]
    with pytest.raises(UnsavableState, match=words) as caught:
        encode({"env": [{}, {"phase of": (1, value)}]}, "state")
    assert str(caught.value).startswith("state.env[1]['phase of'][1]")


def test_a_view_is_saved_without_its_base():
    stream = io.BytesIO()
    torch.save(encode({"a": torch.zeros(1_000_000)[:2], "b": np.zeros(1_000_000)[:2]}), stream)
    assert len(stream.getvalue()) < 10_000


def test_encoding_copies_neither_tensors_nor_arrays():
    tensor, array = torch.zeros(3), np.zeros(3)
    found = encode({"a": tensor, "b": array})
    tensor += 1
    array += 1
    assert same(decode(found), {"a": torch.ones(3), "b": np.ones(3)})


@pytest.mark.parametrize(
    "given", [Phase.WALK, Text("x"), np.longdouble(1)], ids=["enum", "text", "longdouble"]
)
def test_nothing_is_written_that_cannot_be_loaded(tmp_path, given):
    with pytest.raises(UnsavableState, match=r"env\.a: "):
        checkpoint.save(tmp_path, 1, {"algorithm": {}, "env": {"a": given}}, {})
    assert list(tmp_path.iterdir()) == []


def test_an_older_checkpoints_state_is_read():
    """As written before numpy's scalars had a tag."""
    raw = torch.tensor(list(np.arange(3, dtype="<i2").tobytes()), dtype=torch.uint8)
    old = {"a": {"__ndarray__": ["<i2", [3], raw]}, "b": {"__ndarray__": ["<f4", [0, 3], None]}}
    old |= {"c": {"__bytes__": torch.tensor([1, 2], dtype=torch.uint8)}}
    found = decode(old)
    assert same(found, {"a": np.arange(3, dtype="i2"), "b": np.zeros((0, 3), "f4"), "c": b"\1\2"})
    found["a"] += 1  # its memory is writable


def test_the_first_snapshots_name_the_environment():
    states = {"algorithm": {}, "env": lambda: {"envs": {"env": [{}, {}, {"phase": Phase.WALK}]}}}
    with pytest.raises(UserError) as caught:
        check(states, None, "walker")
    said = str(caught.value)
    assert said.startswith("env.envs.env[2].phase: a value of type Phase (a subclass of IntEnum")
    assert "return such values from the state_dict of walker (environment 2)" in said


def test_an_algorithm_that_returns_its_own_memory_is_refused():
    weight, count, moments = torch.zeros(2), np.zeros(3), torch.zeros(0)
    state = {"policy": {"w": weight.clone()}, "parts": [weight.clone(), {"count": count}], "none": moments}
    with pytest.raises(UserError, match=r"algorithm\['parts'\]\[1\]\['count'\]: training would change"):
        check({"algorithm": state}, {"algorithm": state | {"policy": {"w": weight.clone()}, "parts": [
            weight.clone(), {"count": count}]}}, "walker")  # fmt: skip
    copies = {"policy": {"w": weight.clone()}, "parts": [weight.clone(), {"count": count.copy()}]}
    check({"algorithm": copies | {"none": moments}}, {"algorithm": state}, "walker")
