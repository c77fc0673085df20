"""Tests the start of a process that draws for us."""

from __future__ import annotations

import subprocess

from metta_fast.envs.robot.child import start_child


def test_a_script_sees_its_own_folder(tmp_path, monkeypatch):
    """Also where PYTHONSAFEPATH keeps the current folder out of sys.path."""
    (tmp_path / "sibling.py").write_text("WORD = 'seen'\n")
    (tmp_path / "script.py").write_text("import sibling\n\nprint(sibling.WORD)\n")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    child = start_child(tmp_path / "script.py", [], {}, stdout=subprocess.PIPE)
    assert child.communicate(timeout=60)[0] == b"seen\n"
