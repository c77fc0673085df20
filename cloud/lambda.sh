#!/usr/bin/env bash
# Trains on a Lambda machine, with the runs on its persistent file system (there are no spot machines):
#
#     git clone REPOSITORY /home/ubuntu/storage/metta_fast
#     NAME=job ENVIRONMENT=grid_rooms nohup /home/ubuntu/storage/metta_fast/cloud/lambda.sh >>job.log 2>&1 &
#     ssh -L 6006:localhost:6006 ubuntu@MACHINE     # TensorBoard, from your own machine
#
# The same command on another machine with this file system continues the run; set-up is on it too. Lambda's PyTorch is older than
# ours, hence the virtual environment.
set -euo pipefail

here=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=cloud/pass_signals.sh
. "$here/cloud/pass_signals.sh"
export RUNS=${RUNS:-/home/ubuntu/storage/runs} NAME=${NAME:-job} ENVIRONMENT=${ENVIRONMENT:-grid_rooms}
mkdir -p "$RUNS"

"$here/run_ultra_fast.sh" --setup-only
"$here/.venv/bin/tensorboard" --logdir "$RUNS" --host localhost --port 6006 >/tmp/tensorboard.log 2>&1 &
board=$!
code=0
pass_signals "$here/cloud/train.sh" run.dashboard=plain "$@" || code=$?
kill "$board" 2>/dev/null || true
exit "$code"
