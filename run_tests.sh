#!/usr/bin/env bash
# Sets everything up (once), then runs the tests. Arguments go to pytest; paths are those of this folder.
#
#   ./run_tests.sh                       all tests except slow ones; those of the GPU if there is one
#   ./run_tests.sh tests/vector -x       some tests
#   ./run_tests.sh -m slow               slow tests (minutes each)
#
#   METTA_FAST_PYTHON=/path/to/python    use this interpreter and its installed packages (see run_ultra_fast.sh)
set -euo pipefail
called_from=$PWD
script=${BASH_SOURCE[0]}
while [ -L "$script" ]; do
    cd -P "$(dirname "$script")"
    script=$(readlink "$(basename "$script")")
done
cd -P "$(dirname "$script")"

python=${METTA_FAST_PYTHON:-$PWD/.venv/bin/python}
case $python in
    /*) ;;
    */*) python=$called_from/$python ;;
esac
if [ -n "${METTA_FAST_PYTHON:-}" ]; then export METTA_FAST_PYTHON=$python; fi
./run_ultra_fast.sh --setup-only --dev

markers="not slow"
if ! "$python" -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; then
    markers="$markers and not gpu"
fi
if [ $# -gt 0 ] || [ "$(nproc)" -lt 2 ]; then
    exec "$python" -m pytest -m "$markers" "$@" </dev/null
fi

# Two halves at the same time: many tests wait for processes that they start.
second=$(mktemp)
trap 'kill "$half" 2>/dev/null || true; rm -f "$second"' EXIT
"$python" -m pytest -m "$markers" --part 2/2 -p no:cacheprovider </dev/null >"$second" 2>&1 &
half=$!
status=0
echo "the first half of the tests; the second runs at the same time and is shown after it"
"$python" -m pytest -m "$markers" --part 1/2 </dev/null || status=$?
wait "$half" || status=$?
echo "the second half of the tests"
cat "$second"
exit "$status"
