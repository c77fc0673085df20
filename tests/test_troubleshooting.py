"""Checks that docs/troubleshooting.md quotes messages of the code."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def said():
    """Returns the text of all sources, with split literals joined and placeholders as …"""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "metta_fast").rglob("*.py")))
    text += "\n".join(path.read_text() for path in sorted((ROOT / "envs").rglob("*.py")))
    text = re.sub(r"[\"']\n\s*f?[\"']", "", text)
    return re.sub(r"\{[^{}]*\}", "…", text)


def test_messages_are_those_of_the_code():
    text = said()
    page = (ROOT / "docs" / "troubleshooting.md").read_text().split("## Before anything starts")[1]
    quoted = [
        cell
        for row in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
        for cell in re.findall(r"`([^`]+)`", row)
    ]
    pieces = [piece.strip() for cell in quoted for piece in re.split("…", cell) if len(piece.strip()) > 11]
    assert len(pieces) > 30
    assert [piece for piece in pieces if piece not in text] == []
