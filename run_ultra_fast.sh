#!/usr/bin/env bash
# Sets everything up, then trains with the best profile for this machine:
#
#     ./run_ultra_fast.sh                          # set up if needed, then train with hardware=auto
#     ./run_ultra_fast.sh env=grid_solo seed=3     # arguments go to run_optimized.py
#     ./run_ultra_fast.sh resume=auto              # continue the newest run
#     ./run_ultra_fast.sh --setup-only             # stop after set-up
#
# It may be called from any folder, also through a link; runs are written to the folder where it is called.
# Set-up creates .venv, installs the packages of pyproject.toml and builds the native extensions. Packages are installed
# again only when pyproject.toml changes, extensions are built again only when a native source changes. Without a C
# compiler it installs one from Python's package index (ziglang).
#
#     METTA_FAST_PYTHON=/path/to/python    use this interpreter and its installed packages; only the extensions are
#                                          built (for machines without a network)
#     MF_ARCH=native                       build for this processor (docs/hardware.md)
set -euo pipefail

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }
[ -t 2 ] || say() { printf '%s\n' "$*" >&2; }

# Goes to the folder of this script, which may be called through links.
called_from=$PWD
script=${BASH_SOURCE[0]}
while [ -L "$script" ]; do
    cd -P "$(dirname "$script")"
    script=$(readlink "$(basename "$script")")
done
cd -P "$(dirname "$script")"
here=$PWD

setup_only=false dev=false
if [ "${1:-}" = "--setup-only" ]; then
    setup_only=true
    shift
    if [ "${1:-}" = "--dev" ]; then dev=true; fi # with the packages that the tests need: ./run_tests.sh
fi

VERSIONS="3.14 3.13 3.12 3.11" # as in pyproject.toml and metta_fast/machine/compiler.py

# Says whether an interpreter is supported: its version, and not a free-threaded build.
supported() {
    "$1" -c 'import sys, sysconfig
sys.exit(f"{sys.version_info[0]}.{sys.version_info[1]}" not in sys.argv[1].split()
         or bool(sysconfig.get_config_var("Py_GIL_DISABLED")))' "$VERSIONS" >/dev/null 2>&1
}

# Prints the newest supported interpreter that can make a virtual environment; one with its headers is preferred.
find_python() {
    local name without=""
    for name in $(printf 'python%s ' $VERSIONS) python3 python; do
        if supported "$name" && "$name" -c 'import venv, ensurepip' 2>/dev/null; then
            if "$name" -c 'import os, sysconfig
raise SystemExit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'; then
                echo "$name"
                return
            fi
            without=${without:-$name}
        fi
    done
    [ -n "$without" ] || fail "Python 3.11 to 3.14 with venv is needed (found: $(python3 --version 2>&1 || true)).
  Debian, Ubuntu: apt-get install python3 python3-venv python3-dev     macOS: brew install python@3.13
  anywhere:       https://docs.astral.sh/uv  then  uv python install 3.13"
    echo "$without"
}

# Prints the extras of pyproject.toml to install: robots where envs/robot can be built, gpu if there are NVIDIA GPUs.
extra() {
    local names=""
    if [ "$(uname -sm)" = "Linux x86_64" ]; then names=robots; fi
    if compgen -G '/dev/nvidia[0-9]*' >/dev/null; then names=${names:+$names,}gpu; fi
    echo "${names:+[$names]}"
}

# Print checksums: of what the installed packages depend on; of what the extensions are built from.
packages_state() { { echo "$here $(extra) $("$1" -VV 2>&1)" && cksum pyproject.toml; } | cksum; }
extensions_state() {
    {
        echo "$python $("$python" -VV 2>&1) ${MF_ARCH-unset} ${MF_DEBUG:-} ${CC:-}"
        cksum setup.py
        # list.h is written by the build
        find envs metta_fast -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.h' \) ! -name list.h -print0 |
            LC_ALL=C sort -z | xargs -0 cksum
    } | cksum
}
same() { [ "$1" = "$(cat "$2" 2>/dev/null || true)" ]; }

# Runs a step of the set-up: phase TEXT COMMAND… Its output goes to $log. A terminal shows one line with the seconds
# since its start and what pip is doing; elsewhere a line appears at the start, every 20 seconds and at the end.
ticker=""
stop_ticker() { [ -z "$ticker" ] || { kill "$ticker" && wait "$ticker"; } 2>/dev/null || true; ticker=""; }
trap stop_ticker EXIT
exec 3>&2 # the trap may run while stderr is the log
trap 'printf "\ninterrupted; run this again to continue\n" >&3; exit 130' INT
phase() {
    local text=$1 began=$SECONDS code=0
    shift
    printf '\n== %s: %s\n' "$text" "$*" >>"$log"
    [ -t 2 ] || say "  $text …"
    show_progress "$text" "$began" &
    ticker=$!
    "$@" >>"$log" 2>&1 || code=$?
    stop_ticker
    [ ! -t 2 ] || printf '\r\033[K' >&2
    if [ "$code" != 0 ]; then explain "$text" "$code"; fi
    printf '  %s: %d s\n' "$text" $((SECONDS - began)) >&2
}
show_progress() {
    local doing next=$(($2 + 20))
    while sleep 1; do
        doing=$(awk '/^== / { line = "" }
            / *(Collecting|Downloading|Building|Using cached) [^ ]/ { line = $1 " " $2 }
            /^Installing collected/ { line = "Installing" } END { print line }' "$log" | sed 's|[^ ]*/||; s/(.*//')
        if [ -t 2 ]; then
            printf '\r\033[K  %s … %d s%s' "$1" $((SECONDS - $2)) "${doing:+: ${doing:0:45}}" >&2
        elif [ $SECONDS -ge $next ]; then
            next=$((next + 20))
            printf '  %s … %d s%s\n' "$1" $((SECONDS - $2)) "${doing:+: $doing}" >&2
        fi
    done
}

# Ends with one line that says why a step failed, from the step's part of the log.
explain() {
    local part why
    [ "$2" -lt 128 ] || exit "$2"
    part=$(tail -n 200 "$log" | sed -n "/^== /{h;d;};H;\${x;p;}")
    if grep -qiE 'Name or service not known|name resolution|Network is unreachable|No route to host|Connection refused|Failed to resolve|NewConnectionError|ConnectTimeout|Read timed out|ProxyError' <<<"$part"; then
        fail "$1: no network, or the package index cannot be reached; connect and run this again (pip's output: $here/$log)"
    fi
    if grep -qiE 'No space left on device|Disk quota exceeded' <<<"$part"; then
        fail "$1: the disk is full (set-up needs about 2 GB, with a GPU 8 GB, in $here/.venv)"
    fi
    why=$(grep -E '(^|[^a-z])[Ee](rror|RROR): ' <<<"$part" | tail -n 1) || why=$(tail -n 1 <<<"$part")
    why=${why#*rror: }
    fail "$1: ${why#ERROR: } (whole output: $here/$log)"
}

pip_install() { "$python" -m pip install --disable-pip-version-check --no-input --progress-bar off "$@"; }

# Prints a list of pyproject.toml, one entry a line: needs build-system.requires | needs project.dependencies
needs() {
    "$python" -c 'import sys, tomllib
found = tomllib.load(open("pyproject.toml", "rb"))
for word in sys.argv[1].split("."):
    found = found[word]
print("\n".join(found))' "$1"
}

# Installs torch's CPU build on machines without a GPU: 0.2 GB instead of 3.
install_torch() {
    if "$python" -c 'import torch' 2>/dev/null || [ "$(uname -sm)" != "Linux x86_64" ] ||
        compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/kfd ]; then
        return 0
    fi
    pip_install --timeout 15 --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu \
        "$(needs project.dependencies | grep '^torch')"
}

install_build_tools() {
    local tools=()
    while IFS= read -r need; do tools+=("$need"); done < <(needs build-system.requires)
    [ "$1" = 0 ] || tools+=("ziglang>=0.15")
    pip_install "${tools[@]}"
}

make_venv() { "$1" -m venv --clear .venv && .venv/bin/python -m pip --version && touch .venv/complete; }

install_dev() {
    local tools=()
    while IFS= read -r need; do tools+=("$need"); done < <(needs project.optional-dependencies.dev)
    pip_install "${tools[@]}"
    for group in alone alone_mettagrid alone_warp; do
        tools=()
        while IFS= read -r need; do tools+=("$need"); done < <(needs tool.metta_fast.$group)
        pip_install --no-deps --only-binary :all: "${tools[@]}" ||
            echo "no wheel of ${tools[0]} for this Python: its tests are skipped"
    done
    tools=()
    while IFS= read -r need; do tools+=("$need"); done < <(needs tool.metta_fast.remote_tests)
    pip_install --only-binary :all: --upgrade --target .venv/remote "${tools[@]}" ||
        echo "no ${tools[0]} for this Python: its tests are skipped"
}

# The extensions are there already; here pip only takes them from the cache.
install_packages() { pip_install --no-build-isolation --editable ".$(extra)"; }

build() { "$python" setup.py -q build_ext --inplace -j "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)"; }

# Ends where a build cannot start; returns 3 where the only obstacle is a missing C compiler.
check_build() {
    local code=0
    "$1" -I metta_fast/machine/compiler.py || code=$?
    case $code in 0 | 3) return $code ;; *) exit 2 ;; esac
}

log=build/setup.log
if [ -n "${METTA_FAST_PYTHON:-}" ]; then
    python=$METTA_FAST_PYTHON
    case $python in
        /*) ;;
        */*) python=$called_from/$python ;;
    esac
    supported "$python" ||
        fail "METTA_FAST_PYTHON=$METTA_FAST_PYTHON is not Python 3.11 to 3.14 (the usual build, with the GIL)"
else
    python=$here/.venv/bin/python
fi

# A .venv that was left half made, or whose interpreter is gone, is made again.
venv_usable() { supported "$python" && [ -e .venv/complete ]; }
packages_ready() { venv_usable && same "$(packages_state "$python")" .venv/packages.stamp; }
dev_ready() { ! $dev || same "$(cksum <pyproject.toml)" .venv/dev.stamp; }
ready() {
    [ -n "${METTA_FAST_PYTHON:-}" ] || { packages_ready && dev_ready; } || return 1
    same "$(extensions_state)" build/extensions.stamp
}

build_extensions() {
    phase "building the extensions" build
    extensions_state >build/extensions.stamp
}

# Takes the lock of this folder's set-up; waits for another one.
lock() {
    command -v flock >/dev/null || return 0
    exec 9>build/setup.lock
    flock -n 9 || { say "waiting for another set-up in $here" && flock 9; }
}

set_up() {
    local base=$python compiler=0
    { mkdir -p build && touch build/.write && rm -f build/.write; } 2>/dev/null ||
        fail "$here cannot be written, so nothing can be set up there; copy it to a folder of yours and start it there"
    lock
    if ready; then return; fi
    if [ -n "${METTA_FAST_PYTHON:-}" ]; then
        check_build "$python" || fail "no C compiler was found: install one, or the package ziglang into $python"
        "$python" -c 'import Cython, numpy, setuptools' 2>/dev/null ||
            fail "METTA_FAST_PYTHON=$METTA_FAST_PYTHON needs the packages cython, numpy and setuptools to build the extensions"
        say "setting up with $("$python" --version) (output: $log)"
        : >"$log"
        build_extensions
        say "set-up done"
        return
    fi
    venv_usable || base=$(find_python)
    check_build "$base" || compiler=$?
    say "setting up with $("$base" --version) (output: $log)"
    : >"$log"
    if [ "$base" != "$python" ]; then
        phase "making .venv" make_venv "$base"
    fi
    if packages_ready; then
        if [ "$compiler" != 0 ]; then phase "installing a C compiler (ziglang)" install_build_tools 1; fi
        same "$(extensions_state)" build/extensions.stamp || build_extensions
    else
        if [ "$compiler" = 0 ]; then
            phase "installing the build's packages" install_build_tools 0
        else
            phase "installing the build's packages and a C compiler (ziglang)" install_build_tools 1
        fi
        build_extensions
        phase "installing torch" install_torch
        phase "installing the other packages" install_packages
        packages_state "$python" >.venv/packages.stamp
    fi
    if ! dev_ready; then
        phase "installing the tests' packages" install_dev
        cksum <pyproject.toml >.venv/dev.stamp
    fi
    say "set-up done"
}

ready || set_up
if $setup_only; then
    exit 0
fi
exec 3>&- 9>&- # 9: the lock, if it was taken
cd "$called_from"
exec "$python" "$here/run_optimized.py" hardware=auto "$@"
