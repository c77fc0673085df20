"""Tests notices that the machine ends, against fake metadata services and real signals."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from metta_fast.metrics.loggers import read_rows
from metta_fast.run.notices import azure as azure_module
from metta_fast.run.notices import places, schedulers, watch
from metta_fast.run.notices.azure import Azure
from metta_fast.run.notices.ec2 import Ec2
from metta_fast.run.notices.gcp import Gcp
from metta_fast.run.notices.notice import Notice
from metta_fast.run.notices.places import AZURE_TAG, Place, find
from metta_fast.run.signals import Interrupt, Interrupted
from metta_fast.run.trainer import Trainer
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.fake import STEPS, Builder, resolved
from tests.run.fake_metadata import AZURE_EVENTS, AZURE_NAME, EC2_ACTION, EC2_REBALANCE, GCP, metadata
from tests.tiny import COUNTER, named

ACTION = '{"action": "terminate", "time": "2026-12-01T10:02:00Z"}'
VARIABLES = [name for one in schedulers.SCHEDULERS for name in one.variables]
WAIT_S = 10.0


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """A machine of no cloud, without a scheduler."""
    monkeypatch.setattr(places, "FIRMWARE", tmp_path / "no firmware")
    for name in [
        *VARIABLES,
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        "AWS_EC2_METADATA_DISABLED",
        "GCE_METADATA_HOST",
    ]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def service(monkeypatch):
    """A fake metadata service that all three clouds' readers are led to, and are quick to ask."""
    with metadata() as fake:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", fake.url)
        monkeypatch.setenv("GCE_METADATA_HOST", fake.url.removeprefix("http://"))
        monkeypatch.setitem(places._SERVICES, "azure", lambda: Azure(fake.url))
        for kind in (Ec2, Gcp, Azure):
            monkeypatch.setattr(kind, "every_s", 0.02)
        fake.items = {f"{GCP}preempted": "FALSE", f"{GCP}maintenance-event": "NONE"}
        fake.items |= {AZURE_NAME: "vm_1", AZURE_EVENTS: '{"DocumentIncarnation": 1, "Events": []}'}
        yield fake


def event(kind="Preempt", *, seconds=30.0, names=("vm_0", "VM_1"), status="Scheduled"):
    """Azure's document with one event that comes in so many seconds; None: it has begun."""
    when = (
        ""
        if seconds is None
        else format_datetime(datetime.fromtimestamp(time.time() + seconds, UTC), usegmt=True)
    )
    one = {"EventId": "a", "EventType": kind, "ResourceType": "VirtualMachine", "Resources": list(names)}
    return json.dumps(
        {"DocumentIncarnation": 2, "Events": [one | {"EventStatus": status, "NotBefore": when}]}
    )


def until(true):
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name == "mf-notices"]


# ── the services ──


def test_ec2_says_nothing_until_it_takes_the_machine_back(service):
    ec2 = Ec2()
    assert ec2.look() == []
    service.items[EC2_ACTION] = ACTION
    [notice] = ec2.look()
    assert notice.end == "now"
    assert notice.said() == "EC2 terminates this spot machine by 2026-12-01 10:02:00 UTC"
    assert service.tokens == 1


def test_ec2_replaces_a_token_that_is_no_longer_valid(service):
    ec2 = Ec2()
    ec2.look()
    service.tokens += 1
    service.items[EC2_ACTION] = '{"action": "hibernate", "time": "soon"}'
    assert ec2.look() == [Notice("EC2 hibernates this spot machine")]
    assert service.tokens == 3


def test_ec2s_advice_to_move_does_not_end_the_run(service):
    service.items[EC2_REBALANCE] = '{"noticeTime": "2026-12-01T10:02:00Z"}'
    [notice] = Ec2().look()
    assert notice.end == "no"


@pytest.mark.parametrize(
    ("item", "value", "ends"),
    [
        ("preempted", "TRUE\n", ["now"]),
        ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", ["no"]),
        ("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE", []),
    ],
)
def test_gcp(service, item, value, ends):
    gcp = Gcp()
    assert gcp.look() == []
    service.items[GCP + item] = value
    assert [notice.end for notice in gcp.look()] == ends


@pytest.mark.parametrize(
    ("kind", "given", "ends"),
    [
        ("Preempt", {}, ["now"]),
        ("Preempt", {"names": ["vm_0"]}, []),
        ("Freeze", {}, []),
        ("Reboot", {"seconds": 900}, ["before"]),
        ("Redeploy", {"seconds": None, "status": "Started"}, ["now"]),
        ("Terminate", {"seconds": 300}, ["before"]),
    ],
)
def test_azure(service, kind, given, ends):
    azure = Azure(service.url)
    assert azure.look() == []
    service.items[AZURE_EVENTS] = event(kind, **given)
    found = azure.look()
    assert [notice.end for notice in found] == ends
    if found and given.get("seconds", 30) is not None:
        assert abs(found[0].by - time.time() - given.get("seconds", 30)) < 5
    assert service.asked.count(f"GET {AZURE_NAME}") == 1


def test_azures_address_is_the_machines_own():
    assert azure_module.ADDRESS == "http://169.254.169.254"


# ── where this process runs ──


@pytest.mark.parametrize(
    ("file", "text", "cloud"),
    [
        ("sys_vendor", "Amazon EC2\n", "ec2"),
        ("bios_version", "4.11.amazon\n", "ec2"),
        ("product_name", "Google Compute Engine\n", "gcp"),
        ("chassis_asset_tag", f"{AZURE_TAG}\n", "azure"),
        ("sys_vendor", "Dell Inc.\n", None),
    ],
)
def test_the_cloud_is_read_from_the_firmware(monkeypatch, tmp_path, file, text, cloud):
    monkeypatch.setattr(places, "FIRMWARE", tmp_path)
    (tmp_path / file).write_text(text)
    assert find("auto") == Place(cloud, None)
    assert find("none") == Place()
    assert find("gcp").cloud == "gcp"
    if cloud == "ec2":
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        assert find("auto").cloud is None


@pytest.mark.parametrize("scheduler", schedulers.SCHEDULERS, ids=lambda one: one.name)
def test_the_scheduler_is_read_from_the_environment(monkeypatch, scheduler):
    for name in scheduler.variables:
        with monkeypatch.context() as patch:
            patch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")  # whose pods the other schedulers use too
            patch.setenv(name, "1")
            assert find("auto").scheduler is scheduler
    assert find(scheduler.name).scheduler is scheduler
    assert find("auto").scheduler is None


def test_the_table_of_exit_codes():
    def codes(name):
        place = find(name)
        signals = (None, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
        return [place.exit_code(None, signum) for signum in signals]

    assert codes("skypilot") == [33] * 4
    assert codes("slurm") == [143, 143, 143, 85]
    for name in ("none", "ec2", "gcp", "azure", "sagemaker", "runpod", "kubernetes"):
        assert codes(name) == [143] * 4
    assert find("slurm").exit_code(7, signal.SIGUSR1) == find("skypilot").exit_code(7) == 7


def test_nothing_is_imported_or_started_where_there_is_no_cloud(tmp_path):
    code = (
        "import sys, metta_fast.run.trainer as t; t.find('none'); from metta_fast.run.notices import places, watch;"
        "print([m for m in sys.modules if m.startswith('metta_fast.run.notices.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"ec2", "gcp", "azure", "notice"} & {name.split(".")[-1] for name in eval(done.stdout)}

    class Looks(Builder):
        def __call__(self, *given):
            assert threads() == []
            return super().__call__(*given)

    assert Trainer(resolved(tmp_path), build=Looks()).run() == 0


# ── the thread ──


class Listed:
    """A service that gives what is listed, errors raised, then the last again."""

    every_s = 0.005

    def __init__(self, *looks):
        self.looks, self.count = list(looks), 0

    def look(self):
        one = self.looks[min(self.count, len(self.looks) - 1)]
        self.count += 1
        if isinstance(one, Exception):
            raise one
        return one


def watched(service, seconds=None):
    """(reasons, news, whether to save) after the thread has ended or so many looks."""
    reasons = []
    thread = watch.Watch(lambda: service, reasons.append)
    until(lambda: reasons or service.count > len(service.looks) + 2)
    thread.close()
    assert threads() == []
    return reasons, thread.news(), thread.take_save()


def test_errors_are_retried_and_reported_once(monkeypatch):
    monkeypatch.setattr(watch, "SLOWEST_S", 0.005)
    errors = [
        OSError("unreachable"),
        ValueError("no JSON"),
        KeyError("Events"),
        TypeError(),
        OSError("again"),
    ] * 3
    reasons, news, save = watched(Listed(*errors, [Notice("the end")]))
    assert reasons == ["the end"]
    assert len(news) == 1
    assert "does not answer (again)" in news[0]
    assert not save


def test_a_notice_that_may_not_come_true_is_told_once_and_saves():
    maybe = Notice("perhaps the end", end="no")
    reasons, news, save = watched(Listed([], [maybe], [], [maybe]))
    assert reasons == []
    assert news == ["perhaps the end; the state is saved, and the training continues"]
    assert save


def test_an_end_at_a_known_time_ends_the_run_two_minutes_before():
    later, soon = time.time() + 121.5, time.time() + 119
    reasons, _, save = watched(Listed([Notice("a reboot", later, "before")]))
    assert (reasons, save) == ([], True)
    reasons, _, _ = watched(Listed([Notice("a reboot", soon, "before")]))
    assert len(reasons) == 1
    reasons, _, _ = watched(Listed([Notice("an eviction", later, "now")]))
    assert len(reasons) == 1


def test_a_service_that_hangs_holds_the_end_for_its_time_limit_alone(service):
    service.hang.clear()
    begin = time.monotonic()
    thread = watch.Watch(find("ec2").service, lambda why: None)
    assert time.monotonic() - begin < 0.2
    until(lambda: service.asked)
    begin = time.monotonic()
    thread.close()
    assert time.monotonic() - begin < 1.5


# ── whole runs ──


def announce(service, cloud):
    if cloud == "ec2":
        service.items[EC2_ACTION] = ACTION
    elif cloud == "gcp":
        service.items[f"{GCP}preempted"] = "TRUE"
    else:
        service.items[AZURE_EVENTS] = event()


@pytest.mark.parametrize(
    ("cloud", "says"),
    [
        (
            "ec2",
            "stopped: EC2 terminates this spot machine by 2026-12-01 10:02:00 UTC. The state is saved at step 3",
        ),
        (
            "gcp",
            "stopped: Google Cloud takes this spot machine back, within 30 s. The state is saved at step 3",
        ),
        ("azure", "stopped: Azure evicts this machine by 20"),
    ],
)
def test_a_notice_ends_a_run_which_then_continues_exactly(tmp_path, service, cloud, says):
    class Announced(Builder):
        def __call__(self, *given):
            parts, update = super().__call__(*given), self.algorithm.update

            def then():
                update()
                if self.algorithm.epoch == 3:
                    announce(service, cloud)
                    self.algorithm.seconds = WAIT_S  # the notice comes within the next epoch

            self.algorithm.update = then
            return parts

    assert Trainer(resolved(tmp_path, notices=cloud), build=Announced()).run() == 143
    assert threads() == []
    assert says in (tmp_path / "fake/train.log").read_text()
    [(step, path)] = checkpoint.steps(tmp_path / "fake" / "checkpoints")
    assert step == 3 * STEPS
    resumed = Trainer(
        resolved(tmp_path, notices="none"),
        folder=RunDir(tmp_path / "fake"),
        start=checkpoint.read(path),
        build=(last := Builder()),
    )
    assert resumed.run() == 0
    undisturbed = Builder()
    assert Trainer(resolved(tmp_path / "other", notices="none"), build=undisturbed).run() == 0
    assert last.algorithm.weight.equal(undisturbed.algorithm.weight)
    assert [row["train/steps"] for row in read_rows(tmp_path / "fake/metrics.jsonl")] == list(
        range(100, 1001, 100)
    )


def test_a_probable_end_saves_at_the_next_boundary_and_goes_on(tmp_path, service):
    service.items[EC2_REBALANCE] = "{}"
    asked = resolved(tmp_path, notices="ec2", checkpoint_interval=0, checkpoint_max_s=1e9)
    assert Trainer(asked, build=Builder(seconds=0.05)).run() == 0
    steps = [step for step, _ in checkpoint.steps(tmp_path / "fake" / "checkpoints")]
    assert len(steps) == 2
    assert "a rebalance advice" in (tmp_path / "fake/train.log").read_text()
    assert threads() == []


def test_a_service_that_is_out_of_order_changes_nothing(tmp_path, service):
    service.status = 500
    assert Trainer(resolved(tmp_path, notices="azure"), build=Builder(seconds=0.02)).run() == 0
    assert service.asked
    assert threads() == []


@pytest.mark.parametrize(
    ("name", "signum", "code", "says"),
    [
        ("sagemaker", signal.SIGTERM, 143, "stopped by SIGTERM (SageMaker kills the job 120 s later)"),
        ("runpod", signal.SIGTERM, 143, "stopped by SIGTERM (RunPod kills the pod about 5 s later)"),
        (
            "kubernetes",
            signal.SIGTERM,
            143,
            "stopped by SIGTERM (Kubernetes kills the pod after its grace period",
        ),
        ("slurm", signal.SIGTERM, 143, "stopped by SIGTERM (SLURM cancels or preempts the job)"),
        ("slurm", signal.SIGUSR1, 85, "stopped by SIGUSR1 (SLURM's time limit is near)"),
        ("skypilot", signal.SIGTERM, 33, "stopped by SIGTERM (SkyPilot ends the job)"),
        ("none", signal.SIGTERM, 143, "stopped by SIGTERM. The state is saved"),
    ],
)
def test_a_schedulers_signal_saves_and_says_why(tmp_path, monkeypatch, name, signum, code, says):
    scheduler = find(name).scheduler
    if scheduler is not None:
        monkeypatch.setenv(scheduler.variables[0], "1")
    before = signal.getsignal(signum)
    threading.Timer(0.3, os.kill, (os.getpid(), signum)).start()
    assert Trainer(resolved(tmp_path), build=Builder(seconds=0.1)).run() == code
    assert says in (tmp_path / "fake/train.log").read_text()
    assert signal.getsignal(signum) == before
    assert checkpoint.steps(tmp_path / "fake" / "checkpoints")


def test_a_program_that_handles_the_signal_itself_keeps_it():
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        with Interrupt([signal.SIGUSR1]) as interrupt, interrupt.allowed():
            os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == [1]
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(Interrupted), Interrupt([signal.SIGUSR1]) as interrupt, interrupt.allowed():
        os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


@pytest.mark.parametrize("how", ["ec2", "slurm"])
def test_a_real_training_with_workers(tmp_path, how):
    """The scheduler signals every process of the job: workers and their launcher as well."""
    words = [
        "trainer.total_timesteps=100000000",
        "vector.backend=workers",
        "vector.num_workers=2",
        "run.dashboard=plain",
    ]
    with metadata() as fake:
        env = os.environ | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": fake.url}
        env |= {"SLURM_JOB_ID": "7", "AWS_EC2_METADATA_DISABLED": "true"} if how == "slurm" else {}
        command = [sys.executable, "-m", "metta_fast", "train", *COUNTER, *named(tmp_path), *words]
        run = subprocess.Popen(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            until_rows = time.monotonic() + 60
            while (
                not (tmp_path / "r/metrics.jsonl").exists()
                or not (tmp_path / "r/metrics.jsonl").stat().st_size
            ):
                assert time.monotonic() < until_rows
                assert run.poll() is None, run.stdout.read()
                time.sleep(0.05)
            if how == "ec2":
                fake.items[EC2_ACTION] = ACTION
            else:
                for pid in descendants(run.pid):
                    os.kill(pid, signal.SIGUSR1)
            text, _ = run.communicate(timeout=30)
        finally:
            run.kill()
    assert run.returncode == (143 if how == "ec2" else 85), text
    assert ("EC2 terminates this spot machine" if how == "ec2" else "SLURM's time limit is near") in text
    assert "Traceback" not in text
    assert checkpoint.steps(tmp_path / "r" / "checkpoints")


def descendants(pid):
    """A process and all below it."""
    import psutil

    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
