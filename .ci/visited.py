"""Checks that mypy visited every Python file of metta_fast and, through the link, of envs.

python .ci/visited.py linecount.txt        # the file written by `mypy --linecount-report`
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def modules(folder: str, package: str) -> set[str]:
    """Returns the dotted names of the .py files in a folder, without following links."""
    found = set()
    for file in (ROOT / folder).rglob("*.py"):
        parts = file.relative_to(ROOT / folder).with_suffix("").parts
        if package == "metta_fast" and parts[0] in ("envs", "configs"):
            continue
        found.add(".".join((package, *(part for part in parts if part != "__init__"))))
    return found


def main() -> int:
    visited = {line.split()[-1] for line in Path(sys.argv[1]).read_text().splitlines() if line.strip()}
    expected = modules("metta_fast", "metta_fast") | modules("envs", "metta_fast.envs")
    missing = sorted(expected - visited)
    for name in missing:
        print(f"mypy did not visit {name}")
    envs = sum(name.startswith("metta_fast.envs") for name in expected)
    print(f"mypy visited {len(expected & visited)} of {len(expected)} modules, {envs} of them in envs")
    return 1 if missing or not envs else 0


if __name__ == "__main__":
    sys.exit(main())
