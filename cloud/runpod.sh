#!/usr/bin/env bash
# Start command of a RunPod pod (a PyTorch template, ports 22 and 6006, a network volume at /workspace). Once, in the pod:
#
#     git clone REPOSITORY /workspace/metta_fast
#
# then set the pod's start command, which also runs after each restart:
#
#     bash -c "NAME=job ENVIRONMENT=grid_rooms /workspace/metta_fast/cloud/runpod.sh trainer.total_timesteps=1000000000"
#
# The template's PyTorch is older than ours: set-up makes a virtual environment on the volume, once. From SIGTERM to SIGKILL a pod
# has about 5 s, so a checkpoint is written every minute. The pod stops itself when the training is over.
set -euo pipefail

here=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cloud/pass_signals.sh
. "$here/cloud/pass_signals.sh"
export RUNS=${RUNS:-/workspace/runs} NAME=${NAME:-job} ENVIRONMENT=${ENVIRONMENT:-grid_rooms}
mkdir -p "$RUNS"

"$here/run_ultra_fast.sh" --setup-only
"$here/.venv/bin/tensorboard" --logdir "$RUNS" --bind_all --port 6006 >/tmp/tensorboard.log 2>&1 &
board=$!
code=0
pass_signals "$here/cloud/train.sh" run.checkpoint_max_s=60 run.dashboard=plain "$@" || code=$?
kill "$board" 2>/dev/null || true
case $code in
    0 | 2) # over, or a mistake in the arguments; after anything else the pod's next start continues the run
        if command -v runpodctl >/dev/null; then runpodctl stop pod "${RUNPOD_POD_ID:-}" || true; fi
        ;;
esac
exit "$code"
