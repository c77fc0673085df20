#!/usr/bin/env bash
# Sets everything up (once), then runs the tests. Arguments go to pytest.
#
#   ./run_tests.sh                       all tests except slow ones; those of the GPU if there is one
#   ./run_tests.sh tests/vector -x       some tests
#   ./run_tests.sh -m slow               slow tests (minutes each)
#
#   METTA_FAST_PYTHON=/path/to/python    use this interpreter and its installed packages (see run_ultra_fast.sh)
set -euo pipefail
cd "$(dirname "$0")"

./run_ultra_fast.sh --setup-only
python=${METTA_FAST_PYTHON:-.venv/bin/python}

# Installs the development packages of pyproject.toml, once for each state of that file.
stamp=".venv/.dev-$(sha256sum pyproject.toml | cut -c1-16)"
if [ -z "${METTA_FAST_PYTHON:-}" ] && [ ! -e "$stamp" ]; then
    "$python" - <<'PY' | xargs -d '\n' "$python" -m pip install --quiet --disable-pip-version-check
import tomllib
with open("pyproject.toml", "rb") as file:
    print("\n".join(tomllib.load(file)["project"]["optional-dependencies"]["dev"]))
PY
    touch "$stamp"
fi

markers="not slow"
if ! "$python" -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; then
    markers="$markers and not gpu"
fi
exec "$python" -m pytest -m "$markers" "$@" </dev/null
