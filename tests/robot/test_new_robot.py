"""`metta-fast new-robot`: what it writes compiles, and (slow) builds, passes its test and trains in a copy of the
checkout; mistakes write nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.scaffold import new_robot as module
from metta_fast.scaffold.new_robot import PLACES, new_robot
from tests.c_compiler import CC

ROOT = Path(__file__).resolve().parents[2]
CALLS = """
#include "tasks/arm.h"
int main(void) {
    const double qpos[2] = {0.3, 0.4}, qvel[2] = {1, 2}, init[2] = {0, 0};
    const float action[2] = {1, 1};
    const mf_physics p = {.qpos = qpos, .qvel = qvel, .init_qpos = init, .init_qvel = init, .nq = 2, .nv = 2, .nu = 2};
    const arm_params o = {.ctrl_cost_weight = 0.5, .max_distance = 2, .reset_noise_scale = 0.1};
    mf_task_state state;
    mf_rng rng;
    double reward, info[3], obs[4], start[2], speed[2];
    mf_rng_start(&rng, 1, 0, 0, 0);
    arm_before(&o, &p, &state);
    const int ended = arm_after(&o, &p, &state, action, &reward, info);
    arm_observe(&o, &p, obs);
    arm_reset(&o, &p, &rng, start, speed);
    const int right = !ended && fabs(reward - (1 - 0.0625 - 1)) < 1e-12 && fabs(info[0] - 0.5) < 1e-12;
    return !(right && obs[1] == 0.4 && obs[3] == 2 && fabs(start[0]) <= 0.1 && !arm_contact_forces);
}
"""


@pytest.fixture
def root(tmp_path):
    for place in PLACES.values():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    return tmp_path


def written(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_five_files_in_their_places(root):
    files = new_robot("arm", root)
    assert written(root) == sorted(place.format("arm") for place in PLACES.values())
    assert all("$" not in path.read_text() for path in files)


@pytest.mark.skipif(not CC, reason="no C compiler here")
def test_the_rules_compile_without_a_warning_and_are_right(root, tmp_path):
    new_robot("arm", root)
    for header in (ROOT / "envs/robot").rglob("*.h"):
        if header.name != "arm.h":
            copy = root / header.relative_to(ROOT)
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(header, copy)
    source, program = tmp_path / "calls.c", tmp_path / "calls"
    source.write_text(CALLS)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", f"-I{root / 'envs/robot'}"]
    includes = [*flags, f"-I{ROOT / 'envs/native'}"]
    subprocess.run([*CC, *includes, str(source), "-o", str(program), "-lm"], check=True)
    assert subprocess.run([str(program)]).returncode == 0


@pytest.mark.skipif(shutil.which("ruff") is None, reason="no ruff here")
def test_what_it_writes_is_in_the_house_style(root):
    new_robot("arm", root)
    shutil.copy(ROOT / "pyproject.toml", root)
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run(["ruff", *words, "--no-cache", "."], cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_a_model_of_ones_own_is_copied(root, tmp_path):
    pytest.importorskip("mujoco")
    model = tmp_path / "mine.xml"
    model.write_text((module.TEMPLATES / "robot_model.txt").read_text().replace("An arm", "My own"))
    new_robot("mine", root, model)
    assert (root / "envs/robot/tasks/mine.xml").read_text() == model.read_text()


@pytest.mark.parametrize("name", ["Arm", "2arm", "", "a-b", "../arm", "class", "x" * 41, "ärm"])
def test_a_name_that_cannot_be(root, name):
    with pytest.raises(UserError, match=r"e\.g\. two_link_arm"):
        new_robot(name, root)
    assert written(root) == []


@pytest.mark.parametrize("place", PLACES.values())
def test_a_name_that_is_taken_is_left_as_it_was(root, place):
    (root / place.format("arm")).write_text("mine")
    with pytest.raises(UserError, match=r"is taken: .*arm.* exists"):
        new_robot("arm", root)
    assert written(root) == [place.format("arm")]
    assert (root / place.format("arm")).read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("<mujoco><nonsense/></mujoco>", "MuJoCo cannot load a copy of it in"),
        ("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>", "0 joint positions and 0 actuators"),
    ],
)
def test_a_bad_model_leaves_nothing_behind(root, tmp_path, text, message):
    pytest.importorskip("mujoco")
    model = tmp_path / "bad.txt"
    if text is not None:
        model.write_text(text)
    before = written(root)
    with pytest.raises(UserError, match=message):
        new_robot("arm", root, model)
    assert written(root) == before


def test_an_installed_copy_is_told_where_to_go(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "metta_fast" / "new_robot.py"))
    assert main(["new-robot", "arm"]) == 2
    error = capsys.readouterr().err
    assert "needs a checkout" in error
    assert error.count("\n") == 1


def test_no_name_is_told_in_one_line(capsys):
    assert main(["new-robot"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_builds_passes_its_test_and_trains(tmp_path):
    pytest.importorskip("mujoco")
    copy = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".git", "build", "runs", "*.pyc", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)

    def python(*words):
        done = subprocess.run([sys.executable, *words], cwd=copy, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done

    python("-m", "metta_fast", "new-robot", "arm")
    early = subprocess.run(
        [sys.executable, "run_optimized.py", "env=arm"], cwd=copy, capture_output=True, text=True
    )
    assert early.returncode == 2
    assert "not built yet; type: " in early.stderr
    assert early.stderr.rstrip().endswith("build arm")
    built = python("-m", "metta_fast", "build", "arm").stdout
    assert "_robot" in built
    assert "_rules" in built
    on_gpu = "from metta_fast.envs.robot.warp._rules import task_facts; print(task_facts('arm')[0])"
    assert int(python("-c", on_gpu).stdout) > 0
    python("-m", "metta_fast", "build")  # the others, which the copy lacks the record of
    assert python("-m", "metta_fast", "build").stdout == "nothing has changed since it was compiled\n"
    python("-m", "pytest", "-q", "tests/robot/test_arm.py")
    steps = "trainer.total_timesteps=60000"
    python("run_optimized.py", "env=arm", steps, "run.name=arm", "run.dashboard=none")
    rows = [json.loads(line) for line in (copy / "runs/arm/metrics.jsonl").read_text().splitlines()]
    returns = [row["env/return"] for row in rows if "env/return" in row]
    assert returns[-1] > 300 > 2 * returns[0]
    ranges = ["env.params.randomize.mass=[0.8,1.2]", "env.params.randomize.latency=[0,1]"]
    python("run_optimized.py", "env=arm", "trainer.total_timesteps=4096", *ranges, "run.name=random")
    other = json.loads(python("-m", "metta_fast", "eval", "runs/random", "--json", "--episodes=4").stdout)
    plain = json.loads(
        python(
            "-m", "metta_fast", "eval", "runs/random", "--json", "--episodes=4", "env.params.randomize={}"
        ).stdout
    )
    assert other["players"]["policy"]["return"] != plain["players"]["policy"]["return"]
    with (copy / "envs/robot/tasks/arm.h").open("a") as header:
        header.write("/* changed */\n")
    late = subprocess.run(
        [sys.executable, "run_optimized.py", "env=arm"], cwd=copy, capture_output=True, text=True
    )
    assert late.returncode == 2
    assert "was changed since it was built" in late.stderr
