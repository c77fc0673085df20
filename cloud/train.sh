#!/usr/bin/env bash
# Starts a run or continues it, with one command for the first start and every recovery:
#
#     RUNS=/mnt/runs NAME=job ENVIRONMENT=grid_rooms cloud/train.sh trainer.total_timesteps=100000000
#
#     RUNS           folder of all runs, on storage that outlives this machine
#     NAME           the run's name, the same at every start
#     REMOTE         a bucket, s3://bucket/runs, that keeps the run (docs/remote.md); RUNS may be on this machine's own disk then
#     ENVIRONMENT    as in env=…; typed at every start, so that a recovered run may import its code (default grid_rooms)
#     WANDB_API_KEY  if set, Weights & Biases gets the metrics
#
# Arguments go to run_optimized.py. The exit code is the training's (docs/runs.md, "Spot machines"); a signal reaches it,
# because nothing stays in between.
set -euo pipefail

: "${RUNS:?the folder of all runs: RUNS=/mnt/runs}"
: "${NAME:?the name of the run: NAME=job}"
words=(env="${ENVIRONMENT:-grid_rooms}" run.dir="$RUNS" run.name="$NAME" resume=auto)
[ -z "${REMOTE:-}" ] || words+=(run.remote="$REMOTE")
[ -z "${WANDB_API_KEY:-}" ] || words+=(wandb.mode=online)
mkdir -p "$RUNS"
exec "$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/run_ultra_fast.sh" "${words[@]}" "$@"
