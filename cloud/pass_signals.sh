# shellcheck shell=bash
# For scripts that have something to do after a training, and so cannot `exec` it:
#
#     pass_signals COMMAND…     # runs it, passes SIGTERM and SIGUSR1 on to it, and returns its exit code
pass_signals() {
    local code=0 caught=yes
    "$@" &
    local pid=$!
    trap 'caught=yes; kill -TERM "$pid" 2>/dev/null || true' TERM
    trap 'caught=yes; kill -USR1 "$pid" 2>/dev/null || true' USR1
    while [ -n "$caught" ]; do # a signal ends `wait`, not the command
        caught=
        code=0
        wait "$pid" || code=$?
    done
    trap - TERM USR1
    return "$code"
}
