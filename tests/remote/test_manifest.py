"""Tests manifests of states: every one comes back equal, and every cut or altered one is told."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.storage.remote.manifest import DamagedManifest, NewerManifest, Part, State, decode, encode

PARTS = st.builds(
    Part, st.binary(max_size=4).map(lambda b: hashlib.sha256(b).hexdigest()), st.integers(0, 1 << 40)
)
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True)
SCORES = st.none() | st.builds(
    lambda name, value: {"name": name, "value": value},
    st.text(),
    st.floats(allow_nan=False, allow_infinity=False),
)
STATES = st.builds(
    State,
    st.integers(0, 1 << 60),
    st.text("0123456789abcdef", min_size=32, max_size=32),
    st.floats(0, 1e11),
    SCORES,
    st.dictionaries(NAMES, st.lists(PARTS, max_size=3).map(tuple), max_size=4),
)


@given(STATES)
def test_a_manifest_comes_back(state):
    assert decode(encode(state)) == state


@given(STATES, st.data())
def test_a_cut_manifest_is_told(state, data):
    whole = encode(state)
    with pytest.raises(DamagedManifest):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(STATES, st.data())
def test_an_altered_manifest_is_told(state, data):
    whole = bytearray(encode(state))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedManifest):
        decode(bytes(whole))


@given(st.binary(max_size=100))
def test_other_bytes_are_told(data):
    with pytest.raises(DamagedManifest):
        decode(data)


def signed(body):
    line = json.dumps(body).encode()
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


GOOD = {"schema": 1, "step": 3, "run": "a" * 32, "time": 1.0, "score": None, "files": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": "3"},
        {"step": True},
        {"run": "../x"},
        {"time": "inf"},
        {"score": {"name": "x"}},
        {"files": {"../x": {"bytes": 0, "parts": []}}},
        {"files": {".x": {"bytes": 0, "parts": []}}},
        {"files": {"x": {"bytes": 1, "parts": []}}},
        {"files": {"x": {"bytes": 1, "parts": [["../../x", 1]]}}},
        {"files": []},
    ],
)
def test_wrong_content_with_the_right_checksum_is_told(change):
    assert decode(signed(GOOD)).step == 3
    with pytest.raises(DamagedManifest):
        decode(signed(GOOD | change))


def test_a_newer_schema_is_no_damage():
    with pytest.raises(NewerManifest):
        decode(signed(GOOD | {"schema": 2}))
