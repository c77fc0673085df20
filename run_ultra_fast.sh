#!/usr/bin/env bash
# Sets everything up, then trains with the best profile for this machine:
#
#     ./run_ultra_fast.sh                          # set up if needed, then train with hardware=auto
#     ./run_ultra_fast.sh env=grid_solo seed=3     # arguments go to run_optimized.py
#     ./run_ultra_fast.sh resume=auto              # continue the newest run
#     ./run_ultra_fast.sh --setup-only             # stop after set-up
#
# Set-up creates .venv and installs this folder into it (editable, with the native extensions). It is repeated only
# when pyproject.toml, setup.py or a native source changes.
#
#     METTA_FAST_PYTHON=/path/to/python    use this interpreter and its installed packages; only the extensions are
#                                          built (for machines without a network)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }

setup_only=false
if [ "${1:-}" = "--setup-only" ]; then
    setup_only=true
    shift
fi

supported() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; }

find_python() {
    local name
    for name in python3.12 python3.11 python3 python; do
        if supported "$name" && "$name" -c 'import venv, ensurepip' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    fail "Python 3.11 or 3.12 with venv is needed (found: $(python3 --version 2>&1 || true)).
  Debian, Ubuntu: sudo apt install python3 python3-venv     macOS: brew install python@3.12
  anywhere:       https://docs.astral.sh/uv  then  uv python install 3.12"
}

# Prints the extras of pyproject.toml to install: robots where envs/robot can be built, gpu if there are NVIDIA GPUs.
extra() {
    local names=""
    if [ "$(uname -sm)" = "Linux x86_64" ]; then names=robots; fi
    if compgen -G '/dev/nvidia[0-9]*' >/dev/null; then names=${names:+$names,}gpu; fi
    echo "${names:+[$names]}"
}

# Prints a checksum of everything that the installed state depends on.
inputs() {
    {
        echo "$1 ${MF_ARCH:-} ${MF_DEBUG:-} $(extra)"
        cksum setup.py pyproject.toml
        find envs metta_fast -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.h' \) -print0 |
            LC_ALL=C sort -z | xargs -0 cksum
    } | cksum
}

# Runs pip; its output goes to .venv/setup.log, and its main steps to the screen.
pip_install() {
    local line
    "$python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 | tee -a .venv/setup.log |
        while IFS= read -r line; do
            case $line in
                Collecting* | Building* | Installing*) line=${line%% (*} && echo "  ${line%%:*}" >&2 ;;
            esac
        done || {
        tail -n 25 .venv/setup.log >&2
        fail "installation failed (pip's whole output: .venv/setup.log); correct the cause and run this again"
    }
}

# Installs the CPU build of torch on machines without a GPU: 0.2 GB instead of 3.
install_torch() {
    if "$python" -c 'import torch' 2>/dev/null || [ "$(uname -sm)" != "Linux x86_64" ] ||
        compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/kfd ]; then
        return
    fi
    pip_install --timeout 15 --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu \
        "$("$python" -c 'import tomllib; print(next(need for need in
            tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"] if need.startswith("torch")))')"
}

if ! command -v "${CC:-cc}" >/dev/null; then
    fail "a C compiler is needed and '${CC:-cc}' was not found.
  Debian, Ubuntu: sudo apt install build-essential     Fedora: sudo dnf install gcc     macOS: xcode-select --install"
fi

if [ -n "${METTA_FAST_PYTHON:-}" ]; then
    python=$METTA_FAST_PYTHON
    supported "$python" || fail "METTA_FAST_PYTHON=$python is not Python 3.11 or 3.12"
    stamp=build/setup.stamp
    install() {
        say "building the extensions with $python"
        "$python" -c 'import Cython, numpy, setuptools' ||
            fail "METTA_FAST_PYTHON=$python needs the packages cython, numpy and setuptools to build the extensions"
        mkdir -p build
        "$python" setup.py --quiet build_ext --inplace
    }
else
    python=.venv/bin/python
    stamp=.venv/setup.stamp
    install() {
        local base
        if ! supported "$python"; then
            base=$(find_python)
            say "making .venv with $("$base" --version)"
            "$base" -m venv --clear .venv
        fi
        say "installing metta_fast and its dependencies into .venv (takes minutes the first time)"
        : >.venv/setup.log
        install_torch
        pip_install --editable ".$(extra)"
    }
fi

now=$(inputs "$python")
if [ "$now" != "$(cat "$stamp" 2>/dev/null || true)" ]; then
    install
    echo "$now" >"$stamp"
    say "set-up done"
fi
if $setup_only; then
    exit 0
fi
exec "$python" run_optimized.py hardware=auto "$@"
