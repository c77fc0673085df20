"""Tests charts of made-up results: their texts, and mistakes that are reported before anything runs."""

import importlib.util
import json
import re

import pytest

from metta_fast.bench import arguments
from metta_fast.bench.charts import chart
from metta_fast.bench.harness.other_load import Used
from metta_fast.bench.harness.rounds import in_turns
from metta_fast.bench.main import main
from metta_fast.bench.training.ablate import LadderReport, add_gains
from metta_fast.contracts.errors import UserError

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib"
)
MACHINE = {"cpu": "a cpu", "cores": 4, "gpu": ["a card", "a card"], "torch": "2.13"}


def row(name, speed, **more):
    return {"name": name, "steps_per_s": speed, "low": 0.9 * speed, "high": 1.1 * speed, "n": 3, **more}


def returned(reached, seconds=12.5):
    return {"target": 0.5, "limit": 60.0, "reached": reached, "seconds": seconds, "steps": 9, "return": 0.1}


def compared():
    phases = {"env": 1.0, "update": 3.0}
    rows = [row("A: slow & <old>", 2e4, phases=phases, to_return=returned(False, 60.2)),
            row("B: fast", 4e5, phases=phases, to_return=returned(True))]  # fmt: skip
    return {"machine": MACHINE, "command": "python x", "rows": rows,
            "ratios": [{"name": "B / A", "value": 20.0, "low": 19.0, "high": 21.0}]}  # fmt: skip


def climbed():
    report = LadderReport(MACHINE, "python x --ablate")
    rounds = [[100.0, 110.0], [300.0, 320.0], [290.0, 330.0]]
    changes = [{}, {"trainer.batch_size": "1 → 2", "x.y": "a → b", "x.z": "c → d"}, {"run.a": "1 → 2"}]
    for name, speeds, change in zip(("start", "batch", "intervals"), rounds, changes, strict=True):
        more = {"to_return": returned(True)} if name != "intervals" else {"reckoned": True}
        report.add_row(name, speeds, changes=change, **more)
    add_gains(report, rounds)
    return report.to_json()


class Busy:
    """A machine on which other programs never rest."""

    def stop(self):
        return Used(1.5, "compiler (1)")


def words(path):
    """The text of an SVG that keeps text as text."""
    return re.sub(r"<[^>]*>", " ", path.read_text())


@pytest.fixture
def drawn(tmp_path):
    """Draw a document; gives its words."""
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("needs matplotlib")
    from matplotlib import rc_context

    def draw(document):
        path = tmp_path / "x.svg"
        with rc_context({"svg.fonttype": "none"}):
            chart.draw(document, path)
        return words(path)

    return draw


def test_two_sides_with_phases_and_the_time_to_a_return(drawn):
    text = drawn(compared())
    for part in ("B / A: 20.00 times (19.00 to 21.00)", "A: slow &amp; &lt;old&gt;", "400 k", "75 %", "12.5 s",
                 "not in 60 s", "a card + a card", "python x"):  # fmt: skip
        assert part in text, part


def test_the_ladder_says_what_changed_and_what_it_brought(drawn):
    text = drawn(climbed())
    for part in ("What each change brings", "batch_size 1 → 2", "1 more", "× 2.9", "12.5 s"):
        assert part in text, part


def test_rows_that_differ_a_thousandfold_are_drawn_logarithmically(drawn):
    document = {
        "machine": {},
        "command": "",
        "ratios": [],
        "rows": [row("a, x", 1e3), row("b, y", 1e7, peer="p")],
    }
    assert "logarithmic" in drawn(document)
    document["rows"][0] = row("a, x", 2e6)
    assert "logarithmic" not in drawn(document)


def gpu_document():
    def figures(speed):
        return {"steps_per_s": speed, "low": 0.9 * speed, "high": 1.1 * speed, "memory_mib": 300.0}

    return {
        "machine": MACHINE, "command": "x",
        "training": [{"name": "a shape", **figures(4e7),
                      "against": [{"name": "worse", "failed": "no"}, {"name": "slower", **figures(1e6)}]}],
        "parts": [{"run": "one", "failed": "no"},
                  {"run": "two", "parts": [{"name": "a part", "us": {"ours": 2.0, "eager": 9.0}}]}],
        "simulator": [{"name": "an engine", **figures(3e8)}],
        "scale": [{"line": "agents", "value": "64", **figures(2e6)},
                  {"line": "agents", "value": "<many>", "failed": "no"},
                  {"line": "horizon", "value": "16", **figures(8e7) | {"memory_mib": None}}],
    }  # fmt: skip


def test_all_on_the_gpu_and_what_failed(drawn):
    text = drawn(gpu_document())
    for part in ("up to 80 M agent steps", "a shape", "worse", "failed", "a part", "an engine", "by agents",
                 "&lt;many&gt;", "by horizon"):  # fmt: skip
        assert part in text, part


@pytest.mark.parametrize("alone", ["training", "parts", "simulator", "scale"])
def test_one_panel_alone(alone, drawn):
    document = gpu_document()
    for name in {"training", "parts", "simulator", "scale"} - {alone}:
        document[name] = []
    assert "All on the GPU" in drawn(document)


def test_a_picture_says_that_its_rounds_were_disturbed(drawn):
    note = in_turns([lambda: {"steps_per_s": 1.0}], 1, lambda line: None, Busy)[1]
    assert "disturbed by other programs" not in drawn(compared() | {"notes": ["something else"]})
    assert "disturbed by other programs" in drawn(compared() | {"notes": note})


@needs_matplotlib
def test_a_picture_from_figures_measured_before(tmp_path, capsys):
    file, picture = tmp_path / "figures.json", tmp_path / "x.png"
    file.write_text(json.dumps(compared()))
    assert main(["--from", str(file), "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    file.write_text(json.dumps({"machine": {}, "rows": []}))
    assert main(["--from", str(file), "--plot", str(picture)]) == 2
    assert "no results to draw" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "expected a file written by --json"),
        ("[]", "has no key 'machine'"),
    ],
)
@needs_matplotlib
def test_a_file_that_is_none_of_ours(content, message, tmp_path, capsys):
    file = tmp_path / "x.json"
    if content is not None:
        file.write_text(content)
    assert main(["--from", str(file), "--plot", str(tmp_path / "x.png")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--plot", "x.jpg"], "expected a name that ends in .png, .svg, .pdf"),
        (["--plot", "/no/such/x.png"], "no folder /no/such"),
        (["--from", "x.json"], "name the chart's file with --plot"),
        (["--quick", "--find-batch"], "--quick has no effect with --find-batch"),
        (["--ablate", "--simulator"], "not allowed with"),
        (["--ablate", "env=grid"], "env=grid: key=value goes with --camera, --find-batch and --train"),
        (["--gpu-scale", "--ablate"], "--gpu-scale goes with --gpu or alone, not with --ablate"),
        (["--vector", "--return", "1"], "--return 1 goes with two sides or --ablate"),
        (["--find-batch", "--json", "x"], "prints what to type"),
    ],
)
def test_options_that_do_not_go_together_are_told_in_one_line(given, message, capsys):
    assert main(given) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_without_matplotlib_the_cure_is_told_before_anything_runs(monkeypatch, capsys):
    monkeypatch.setattr(chart.importlib.util, "find_spec", lambda name: None)
    assert main(["--plot", "x.png"]) == 2
    error = capsys.readouterr().err
    assert "pip install matplotlib" in error
    assert "--from FILE --plot FILE" in error


def test_a_place_where_nothing_can_be_written(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "x.png").mkdir()
    with pytest.raises(UserError, match="cannot write --plot"):
        chart.draw(compared(), tmp_path / "x.png")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], (10.0, 5)), (["--seconds", "2", "--repeats", "9"], (2.0, 9)), (["--ablate"], (5.0, 5)),
        (["--ablate", "--quick"], (1.0, 2)), (["--ablate", "--quick", "--repeats", "7"], (1.0, 2)),
        (["--gpu-scale"], (0.5, 5)), (["--env", "ant", "--quick"], (0.3, 1)), (["--simulator"], (1.0, 5)),
        (["--simulator", "--quick"], (0.2, 2)), (["--quick"], (1.0, 2)), (["--sb3", "ant", "--quick"], (1.0, 2)),
    ],
)  # fmt: skip
def test_how_long_it_measures(given, expected):
    found = arguments.length(arguments.parser().parse_args(given))
    assert (found.seconds, found.repeats) == expected
