"""Tests the files of cloud/: by their schemas, and by running the scripts with stand-ins for what a cloud provides."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from metta_fast.resolve.compose import compose
from metta_fast.run.notices.schedulers import SCHEDULERS
from tests.test_dockerfile import instructions
from tests.tiny import COUNTER

ROOT = Path(__file__).resolve().parent.parent
CLOUD = ROOT / "cloud"
SCRIPTS = sorted(
    path for path in CLOUD.iterdir() if path.suffix == ".sh" or path.read_text().startswith("#!")
)
START = f"""#!/usr/bin/env bash
# Stands for run_ultra_fast.sh: nothing has to be set up here.
[ "$1" != --setup-only ] || exit 0
exec {sys.executable} {ROOT}/run_optimized.py "$@"
"""
TINY = [word for word in COUNTER if not word.startswith("env=")]
LONG = "trainer.total_timesteps=100000000"


def documents(name):
    return list(yaml.safe_load_all((CLOUD / name).read_text()))


def module(name):
    spec = importlib.util.spec_from_file_location(name, CLOUD / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def checkout(tmp_path):
    """A folder with cloud/, and stand-ins for set-up, TensorBoard, scontrol and others; they note their words."""
    root = tmp_path / "a checkout"
    shutil.copytree(CLOUD, root / "cloud", ignore=shutil.ignore_patterns("__pycache__"))
    programs = {root / "run_ultra_fast.sh": START}
    for name in ("scontrol", "runpodctl", "systemctl", "mount", "mountpoint", "chown", "sudo"):
        code = "exit 1" if name == "mountpoint" else ""
        programs[root / "bin" / name] = f'#!/bin/bash\necho "{name} $*" >>"{tmp_path}/calls"\n{code}\n'
    programs[root / ".venv/bin/tensorboard"] = (
        f'#!/bin/bash\necho "tensorboard $*" >>"{tmp_path}/calls"\nexec sleep 100\n'
    )
    for path, text in programs.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return root


def calls(checkout):
    path = checkout.parent / "calls"
    return path.read_text().splitlines() if path.exists() else []


def start(checkout, script, words, **variables):
    """A script of cloud/ with these words, as its cloud would start it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    env |= {"PATH": f"{checkout / 'bin'}:{env['PATH']}", "PYTHONPATH": str(ROOT), "ENVIRONMENT": "counter"}
    env |= {"RUNS": str(checkout.parent / "runs"), "OMP_NUM_THREADS": "1"} | variables
    return subprocess.Popen(
        ["bash", checkout / "cloud" / script, *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def learning(checkout, name, process):
    """Waits until the run has written a row of metrics."""
    rows, deadline = checkout.parent / "runs" / name / "metrics.jsonl", time.monotonic() + 60
    while not (rows.exists() and rows.stat().st_size):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ── the scripts ──


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_bash_can_read_the_script(script):
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr == ""
    assert script.name == "pass_signals.sh" or os.access(script, os.X_OK)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing():
    done = subprocess.run(["shellcheck", "-x", *SCRIPTS], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "script", [path for path in SCRIPTS if path.name not in ("train.sh", "pass_signals.sh")]
)
def test_every_script_types_the_environment_again(script):
    text = script.read_text()
    assert "cloud/train.sh" in text
    assert "ENVIRONMENT" in text
    assert "NAME" in text


@pytest.mark.parametrize("missing", ["RUNS", "NAME"])
def test_what_is_missing_is_named(checkout, missing):
    given = {"RUNS": "r", "NAME": "n"} | {missing: ""}
    run = start(checkout, "train.sh", [], **given)
    text, _ = run.communicate(timeout=20)
    assert run.returncode != 0
    assert f"{missing}=" in text


def test_the_start_types_all_that_a_recovery_needs(checkout):
    (checkout / "run_ultra_fast.sh").write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    run = start(
        checkout, "train.sh", ["seed=3"], RUNS=f"{checkout}/all runs", NAME="n", WANDB_API_KEY="secret"
    )
    text, _ = run.communicate(timeout=20)
    words = text.splitlines()
    assert words == [
        *(
            "env=counter",
            f"run.dir={checkout}/all runs",
            "run.name=n",
            "resume=auto",
            "wandb.mode=online",
            "seed=3",
        ),
    ]
    assert "secret" not in text


def test_slurm_queues_the_job_again_until_it_is_trained(checkout):
    """The real signal and a real training: saved, queued again, continued to its end."""
    given = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(checkout)}
    words = [*TINY, "run.dashboard=plain"]
    run = start(checkout, "slurm.sbatch", [*words, LONG], **given)
    learning(checkout, "slurm-7", run)
    run.send_signal(signal.SIGUSR1)
    text, _ = run.communicate(timeout=30)
    assert run.returncode == 0, text
    assert "SLURM's time limit is near" in text
    assert calls(checkout) == ["scontrol requeue 7"]
    [newest] = re.findall(r"saved at step (\d+)", text)
    end = f"trainer.total_timesteps={int(newest) + 512}"
    run = start(checkout, "slurm.sbatch", [*words, end], **given)
    text, _ = run.communicate(timeout=60)
    assert run.returncode == 0, text
    assert f"continuing from step {newest}" in text
    assert "trained to" in text
    assert calls(checkout) == ["scontrol requeue 7"]


@pytest.mark.parametrize(
    ("code", "queued"), [(85, True), (138, True), (143, False), (2, False), (1, False), (0, False)]
)
def test_slurm_queues_again_after_its_own_signal_alone(checkout, code, queued):
    (checkout / "run_ultra_fast.sh").write_text(f"#!/bin/bash\nexit {code}\n")
    run = start(checkout, "slurm.sbatch", [], SLURM_JOB_ID="7", SLURM_SUBMIT_DIR=str(checkout))
    run.communicate(timeout=20)
    assert calls(checkout) == (["scontrol requeue 7"] if queued else [])
    assert run.returncode == (0 if queued else code)


def test_the_sbatch_file_asks_for_the_signal_that_the_run_knows():
    given = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", (CLOUD / "slurm.sbatch").read_text(), re.M))
    assert given["signal"] == "B:USR1@120"
    assert given["open-mode"] == "append"
    assert "requeue" in given
    [slurm] = [one for one in SCHEDULERS if one.name == "slurm"]
    assert slurm.signals[signal.SIGUSR1][1] == 85


@pytest.mark.parametrize("script", ["runpod.sh", "lambda.sh"])
def test_a_start_script_passes_sigterm_on(checkout, script):
    run = start(checkout, script, [*TINY, LONG], NAME="job", RUNPOD_POD_ID="pod")
    learning(checkout, "job", run)
    begin = time.monotonic()
    run.terminate()
    text, _ = run.communicate(timeout=30)
    assert time.monotonic() - begin < 5  # RunPod's window
    assert run.returncode == 143, text
    assert "stopped by SIGTERM (RunPod" in text
    assert re.search(r"saved at step \d+", text)
    assert [line.split()[0] for line in calls(checkout)] == ["tensorboard"]
    assert "--port 6006" in calls(checkout)[0]


@pytest.mark.parametrize(("code", "stops"), [(0, True), (2, True), (1, False), (143, False)])
def test_a_pod_stops_itself_when_the_training_is_over(checkout, code, stops):
    (checkout / "run_ultra_fast.sh").write_text(f"#!/bin/bash\n[ $1 = --setup-only ] || exit {code}\n")
    run = start(checkout, "runpod.sh", [], RUNPOD_POD_ID="pod7")
    run.communicate(timeout=20)
    assert run.returncode == code
    assert ("runpodctl stop pod pod7" in calls(checkout)) == stops


def test_ec2s_user_data_writes_a_unit_that_starts_the_run_at_each_boot(checkout, tmp_path, monkeypatch):
    unit, runs = tmp_path / "metta_fast.service", tmp_path / "mnt"
    text = (checkout / "cloud/ec2_user_data.sh").read_text().replace("/etc/fstab", f"{tmp_path}/fstab")
    (checkout / "cloud/ec2_user_data.sh").write_text(text)
    (tmp_path / "fstab").write_text("")
    given = {
        "UNIT": str(unit),
        "RUNS": str(runs),
        "CHECKOUT": str(tmp_path / "new"),
        "NAME": "job",
        "WORDS": "seed=3",
    }
    for _ in range(2):
        run = start(checkout, "ec2_user_data.sh", [], REPOSITORY="https://x/y.git", **given)
        out, _ = run.communicate(timeout=20)
        assert run.returncode == 0, out
    assert (tmp_path / "fstab").read_text().count(f" {runs} nfs4 ") == 1
    lines = dict(re.findall(r"^(\w+)=(.+)$", unit.read_text(), re.M))
    assert lines["ExecStart"] == f"{tmp_path}/new/cloud/train.sh run.dashboard=plain seed=3"
    assert lines["Environment"] == f'"RUNS={runs}" "NAME=job" "ENVIRONMENT=counter"'
    assert lines["RestartPreventExitStatus"].split() == ["2", "143"]
    assert lines["KillMode"] == "mixed"  # SIGTERM to the training alone, not to its workers
    names = [line.split()[0] for line in calls(checkout)]
    assert names[:5] == ["mountpoint", "mount", "chown", "sudo", "systemctl"]
    assert "sudo -u ubuntu git clone --depth 1 https://x/y.git" in calls(checkout)[3]
    assert calls(checkout)[5] == "systemctl enable --now metta_fast.service"


# ── what others read ──


def test_skypilots_task():
    [task] = documents("skypilot.yaml")
    assert set(task) <= {"name", "workdir", "resources", "envs", "file_mounts", "setup", "run"}
    resources = task["resources"]
    assert set(resources) == {"accelerators", "use_spot", "disk_size", "job_recovery"}
    assert resources["use_spot"] is True
    assert {name.partition(":")[0] for name in resources["accelerators"]} == {
        *("A10G", "L4", "A100", "H100", "H200", "RTX4090"),
    }
    [sky] = [one for one in SCHEDULERS if one.name == "skypilot"]
    assert resources["job_recovery"] == {
        "strategy": "EAGER_NEXT_REGION",
        "max_restarts_on_errors": 3,
        "recover_on_exit_codes": [sky.exit_code],
    }
    assert task["file_mounts"] == {"/checkpoint": {"name": "${BUCKET}", "mode": "MOUNT_CACHED"}}
    assert task["envs"]["BUCKET"] is None
    assert task["envs"]["ENVIRONMENT"]
    assert all(value is None or isinstance(value, str) for value in task["envs"].values())


def test_skypilots_run_starts_the_training(checkout):
    (checkout / "run_ultra_fast.sh").write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    [task] = documents("skypilot.yaml")
    script = task["run"].replace("/checkpoint", str(checkout.parent))
    env = os.environ | {
        "SKYPILOT_TASK_ID": "sky-7_job_0",
        "ENVIRONMENT": "counter",
        "STEPS": "99",
        "WANDB_API_KEY": "",
    }
    done = subprocess.run(
        ["bash", "-c", script], env=env, cwd=checkout, capture_output=True, text=True, check=True
    )
    words = done.stdout.splitlines()
    assert words[:4] == [
        "env=counter",
        f"run.dir={checkout.parent}/runs",
        "run.name=sky-7_job_0",
        "resume=auto",
    ]
    assert words[4:] == ["trainer.total_timesteps=99"]
    for part in ("setup", "run"):
        assert subprocess.run(["bash", "-n"], input=task[part], text=True).returncode == 0


def test_kubernetes_job():
    claim, job = documents("kubernetes.yaml")
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["restartPolicy"] == "Never"  # which podFailurePolicy requires
    assert pod["terminationGracePeriodSeconds"] >= 30
    actions = {}
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        codes = rule.get("onExitCodes")
        if codes is not None:
            assert codes["containerName"] == container["name"]
        actions[rule["action"], tuple(codes["values"]) if codes else rule["onPodConditions"][0]["type"]] = (
            True
        )
    assert set(actions) == {("Ignore", "DisruptionTarget"), ("Ignore", (143,)), ("FailJob", (2,))}
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert set(variables) == {"RUNS", "NAME", "ENVIRONMENT"}
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert (
        volumes[mounts[variables["RUNS"]]]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    )
    assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
    compose([*container["args"], f"env={variables['ENVIRONMENT']}"])


GIVEN = [
    *("--name", "job", "--image", "1.dkr.ecr.eu-west-1.amazonaws.com/metta_fast:cuda", "--bucket", "b"),
    *(
        "--role",
        "arn:aws:iam::123456789012:role/SageMaker",
        "--environment",
        "counter",
        "--",
        "seed=3",
        "a b",
    ),
]


def test_sagemakers_request_is_one_that_its_client_takes(capsys):
    job = module("sagemaker_job")
    job.main(["--print", *GIVEN])
    request = json.loads(capsys.readouterr().out)
    assert request["CheckpointConfig"]["LocalPath"] == request["Environment"]["RUNS"] == "/opt/ml/checkpoints"
    assert request["Environment"]["ENVIRONMENT"] == "counter"
    assert request["AlgorithmSpecification"]["ContainerArguments"][-2:] == ["seed=3", "a b"]
    stop = request["StoppingCondition"]
    assert request["EnableManagedSpotTraining"]
    assert stop["MaxWaitTimeInSeconds"] >= stop["MaxRuntimeInSeconds"]
    session = pytest.importorskip(
        "botocore.session", reason="botocore, which has SageMaker's schema, is not installed"
    )
    from botocore.validate import ParamValidator

    shape = (
        session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    )
    assert ParamValidator().validate(request, shape).generate_report() == ""
    assert ParamValidator().validate(request | {"EnableManagedSpot": True}, shape).has_errors()


def test_sagemakers_model_trainer_is_given_the_same():
    import argparse

    made = module("sagemaker_model_trainer").settings(
        argparse.Namespace(
            name="job",
            image="i",
            role="r",
            bucket="b",
            environment="counter",
            machine="m",
            days=2,
            words=["x=a b"],
        )
    )
    assert made["source_code"]["source_dir"] == str(ROOT)
    assert made["source_code"]["command"] == "bash cloud/train.sh run.dashboard=plain 'x=a b'"
    assert made["checkpoint_config"]["local_path"] == made["trainer"]["environment"]["RUNS"]
    assert made["trainer"]["environment"]["ENVIRONMENT"] == "counter"
    assert made["compute"]["enable_managed_spot_training"]


@pytest.mark.parametrize("name", ["Dockerfile.cuda", "Dockerfile.rocm"])
def test_dockerfiles(name):
    steps = instructions((CLOUD / name).read_text())
    assert steps[0][0] == "FROM"
    assert re.fullmatch(r"python:3\.1[1-4]-slim-[a-z]+", steps[0][1])
    assert {word for word, _ in steps} <= {"FROM", "RUN", "ENV", "ARG", "WORKDIR", "COPY", "ENTRYPOINT"}
    [folder] = [argument for word, argument in steps if word == "WORKDIR"]
    assert steps[-1] == ("ENTRYPOINT", f'["{folder}/cloud/train.sh"]')
    installs = " ".join(argument for word, argument in steps if word == "RUN")
    project = (ROOT / "pyproject.toml").read_text()
    for needed in re.findall(r'"((?:setuptools|cython|numpy|torch|mujoco-core)[<>=][^";]+)"', installs):
        assert f'"{needed}' in project, needed
    assert "rm -rf /var/lib/apt/lists/*" in installs
    assert "./run_ultra_fast.sh --setup-only" in installs
