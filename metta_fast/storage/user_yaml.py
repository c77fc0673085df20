"""Checks a configuration file of the user's before Hydra reads it, so that a mistake names the file and the line.

Refused: what is no regular file or no UTF-8, aliases that contain themselves or grow without bound, and numbers that
YAML 1.1 reads as others than they look: `1:30` is 90, `010` is 8.

Place in the flow: resolve/config_files.py calls `check_file` for the files of --config-dir.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from metta_fast.contracts.errors import UserError
from metta_fast.storage.user_files import read_text

MOST_BYTES = 1 << 20
MOST_NODES = 20_000
"""Values of a file with its aliases written out."""
MOST_DEPTH = 30
MOST_DIGITS = 300
BOM = b"\xef\xbb\xbf"
SIXTIES = re.compile(r"[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
EIGHTS = re.compile(r"[-+]?0[0-7_]+")


def check_file(path: Path) -> None:
    """Raises UserError: the file cannot be used; the message names file, line and cure."""
    text = read_text(path, f"configuration file {path}", MOST_BYTES)
    if path.read_bytes().startswith(BOM):
        raise UserError(
            f"configuration file {path} begins with a byte order mark, which hides its first line; save it as UTF-8 "
            "without one (sed -i '1s/^\\xef\\xbb\\xbf//' FILE)"
        )
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise UserError(f"configuration file {path} is not YAML: {_in_short(error)}") from None
    except RecursionError:
        raise UserError(
            f"configuration file {path}: its values are nested more than {MOST_DEPTH} deep"
        ) from None
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"configuration file {path}: expected `key: value` lines, got {text.strip()[:40]!r}")
    _Walk(path).walk(root, (), "")
    for name, value in root.value:
        if name.value == "defaults" and not isinstance(value, yaml.SequenceNode):
            raise UserError(
                f"configuration file {path}: defaults={value.value}: expected a list, as [grid, _self_]"
            )


def _in_short(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{problem} (line {mark.line + 1})" if mark else str(problem)


class _Walk:
    """Visits every value, each alias as often as it is used."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0

    def walk(self, node: yaml.Node, above: tuple[int, ...], key: str) -> None:
        """Checks a node. above: the ids of the nodes that it is in; key: its dotted name."""
        line = node.start_mark.line + 1
        self.count += 1
        where = f"configuration file {self.path}, line {line}"
        if id(node) in above:
            raise UserError(
                f"{where}: {key or 'the file'} contains itself by an alias (*); write its values out"
            )
        if self.count > MOST_NODES or len(above) > MOST_DEPTH:
            raise UserError(
                f"{where}: with its aliases (*) written out it has more than {MOST_NODES} values, or is nested more "
                f"than {MOST_DEPTH} deep"
            )
        inside = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for name, value in node.value:
                if not isinstance(name, yaml.ScalarNode):
                    raise UserError(
                        f"{where}: a key of {key or 'the file'} is a list or dict; expected a name"
                    )
                if name.value in seen:
                    raise UserError(
                        f"{where}: {key}{'.' * bool(key)}{name.value} is given twice; remove one of them"
                    )
                seen.add(name.value)
                self.walk(value, inside, f"{key}.{name.value}".lstrip("."))
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                self.walk(value, inside, key)
        elif isinstance(node, yaml.ScalarNode) and node.style is None:
            self._plain(where, key, node.value)

    def _plain(self, where: str, key: str, text: str) -> None:
        if len(text) > MOST_DIGITS and text.strip("+-").isdigit():
            raise UserError(f"{where}: {key}={text[:20]}… has {len(text)} digits; give a smaller number")
        for pattern, base in ((SIXTIES, 60), (EIGHTS, 8)):
            if pattern.fullmatch(text) and text.strip("+-0_") != "":
                number = yaml.safe_load(text)
                raise UserError(
                    f"{where}: {key}={text}: YAML reads this as a number of base {base}: {number:g}; write {number:g}, "
                    f"or '{text}' in quotes if it is text"
                )
