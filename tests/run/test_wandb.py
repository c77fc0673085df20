"""Tests Weights & Biases: each step is logged once across resumes, and no failure of it ends a training."""

import json
import os
import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest

from metta_fast.config.keys import WandbConfig
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import WorkerError
from metta_fast.metrics import wandb_logger as wandb_log
from metta_fast.metrics.loggers import read_rows
from metta_fast.metrics.wandb_logger import check_wandb
from metta_fast.run.trainer import Trainer
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.fake import Builder, resolved

ALL = list(range(100, 1001, 100))


@pytest.fixture(autouse=True)
def every_row(monkeypatch):
    monkeypatch.setattr(wandb_log, "GAP_S", 0.0)
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # it keeps what the environment said


def train(folder, *, mode="offline", at=None, resume=False, **algorithm):
    """A run of ten epochs of 100 steps; `at`: go on from that checkpoint, else from the newest."""
    asked = resolved(folder, checkpoint_interval=2, keep_checkpoints=99)
    asked.config.wandb.mode = mode
    run_dir = start = None
    if resume or at is not None:
        run_dir = RunDir(folder / "fake")
        path = run_dir.checkpoints / f"step_{at or 0:012d}"
        start = checkpoint.read(path) if at else checkpoint.latest(run_dir.checkpoints, pytest.fail)
    return Trainer(asked, folder=run_dir, start=start, build=Builder(**algorithm)).run()


def rows(folder):
    return list(read_rows(folder / "fake" / "metrics.jsonl"))


# ── the module itself, offline: no account, no network ──


BLOCK = 32768
HEAD = struct.Struct("<IHB")
"""Of a piece of a record: checksum, length, kind (1 whole, 2 first, 3 middle, 4 last)."""


def records(path):
    """The records of a .wandb file: LevelDB's log format after a head of seven bytes."""
    data, at, whole = path.read_bytes(), HEAD.size, b""
    assert data.startswith(b":W&B")
    while at + HEAD.size <= len(data):
        if BLOCK - at % BLOCK < HEAD.size:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = HEAD.unpack_from(data, at)
        if kind == 0:
            return
        whole += data[at + HEAD.size : at + HEAD.size + length]
        at += HEAD.size + length
        if kind in (1, 4):
            yield whole
            whole = b""


def recorded(path):
    """(ids of the run, [(step, items)]) of a .wandb file."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # as at a process's end: its service has written out what it was given
    ids, history = [], []
    for data in records(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            ids.append(record.run.run_id)
        if record.WhichOneof("record_type") == "history":
            items = {
                item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item
            }
            history.append((items["_step"], items))
    return ids, history


def test_offline_the_newest_folder_holds_every_step_once(tmp_path):
    pytest.importorskip("wandb")
    assert train(tmp_path, fail={7: WorkerError("gone")}) == 1
    assert train(tmp_path, at=400) == 0
    files = sorted((tmp_path / "fake/wandb").glob("offline-run-*/*.wandb"), key=os.path.getmtime)
    assert len(files) == 2
    (first, _), (again, history) = recorded(files[0]), recorded(files[1])
    assert set(first) == set(again) == {(tmp_path / "fake/wandb/id").read_text().strip()}
    assert [step for step, _ in history] == ALL
    for (_, items), row in zip(history, rows(tmp_path)):
        assert {name: items[name] for name in row} == row


def test_a_server_that_cannot_be_reached_leaves_it_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setattr(wandb_log, "INIT_S", 1.0)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert train(tmp_path, mode="online") == 0
    said = (tmp_path / "fake/train.log").read_text()
    assert "W&B cannot be reached" in said
    assert "upload with wandb sync" in said
    (file,) = (tmp_path / "fake/wandb").glob("offline-run-*/*.wandb")
    assert [step for step, _ in recorded(file)[1]] == ALL


def test_disabled_it_is_not_imported(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tests.run.fake import Builder, resolved\n"
        "from metta_fast.run.trainer import Trainer\n"
        f"assert Trainer(resolved(Path({str(tmp_path)!r})), build=Builder()).run() == 0\n"
        "assert 'wandb' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert not (tmp_path / "fake/wandb").exists()


# ── a server, played ──


class Server:
    """What a run's server keeps, over several sessions; stands for the module wandb as well."""

    def __init__(self, **faults):
        self.steps, self.config, self.ids, self.codes, self.faults = [], {}, [], [], faults
        self.errors = SimpleNamespace(Error=RuntimeError)
        self.resumed = False

    def Settings(self, **keys):
        return keys

    def init(self, *, mode, id, resume, config, **_):
        assert resume == "allow"
        if mode == "online" and "init" in self.faults:
            raise RuntimeError(self.faults["init"])
        self.ids.append(id)
        self.config = config
        self.offline, self.url = mode == "offline", "https://…"
        self.resumed = bool(self.steps)
        self.settings = SimpleNamespace(sync_dir="there")
        return self

    @property
    def step(self):
        return self.steps[-1] + 1 if self.steps else 0

    def teardown(self):
        pass

    def define_metric(self, name, **_):
        pass

    def log(self, row, step):
        if step >= self.faults.get("log", 1 << 60):
            raise ConnectionError("the service has died")
        assert row["train/steps"] == step
        self.steps.append(step)

    def finish(self, exit_code):
        self.codes.append(exit_code)
        if "finish" in self.faults:
            raise ConnectionError("no answer")


@pytest.fixture
def serve(monkeypatch):
    def start(**faults):
        server = Server(**faults)
        monkeypatch.setitem(sys.modules, "wandb", server)
        return server

    return start


@pytest.mark.parametrize("lost", [0, 1, 3, 7])
def test_online_a_resumed_run_loses_and_doubles_no_step(tmp_path, serve, lost):
    """`lost`: so many of the last rows never reached the server."""
    server = serve()
    assert train(tmp_path, mode="online", fail={7: WorkerError("gone")}) == 1
    server.steps = server.steps[: len(server.steps) - lost]
    assert train(tmp_path, mode="online", at=400) == 0
    assert server.steps == ALL
    assert len(set(server.ids)) == 1
    assert server.codes == [1, 0]
    assert server.config["trainer"]["total_timesteps"] == 1000


def test_a_run_that_began_without_it_brings_its_past(tmp_path, serve):
    assert train(tmp_path, mode="disabled", fail={5: WorkerError("gone")}) == 1
    server = serve()
    assert train(tmp_path, mode="online", resume=True) == 0
    assert server.steps == ALL


def test_a_refusal_stops_before_the_training(tmp_path, serve):
    serve(init="Failed to get resume status: returned error 403: no")
    with pytest.raises(UserError, match=r"wandb\.entity"):
        train(tmp_path, mode="online")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", [{"log": 300}, {"finish": True}])
def test_a_break_down_does_not_end_the_training(tmp_path, serve, fault):
    server = serve(**fault)
    assert train(tmp_path, mode="online") == 0
    assert (tmp_path / "fake/train.log").read_text().count("W&B") == 2
    assert [row["train/steps"] for row in rows(tmp_path)] == ALL
    assert server.steps == (ALL if "finish" in fault else [100, 200])


# ── mistakes ──


def test_what_is_missing_is_told_before_the_start(monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("NETRC", "/nonexistent")
    check_wandb(WandbConfig("disabled"))
    check_wandb(WandbConfig("offline"))
    with pytest.raises(UserError, match="wandb login"):
        check_wandb(WandbConfig("online"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(UserError, match="WANDB_MODE=offline"):
        check_wandb(WandbConfig("online"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install wandb"):
        check_wandb(WandbConfig("offline"))
