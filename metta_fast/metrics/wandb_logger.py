"""Weights & Biases, when it is asked for: wandb.mode=offline (no account, no network) or online.

    python run_optimized.py wandb.mode=offline
    wandb sync runs/<name>/wandb/offline-run-…        # later, from anywhere; the newest folder has all of it

metrics.jsonl is the record; what W&B has is made equal to it. Rows go there under their step (`train/steps`), those of
a tenth of a second merged into one. A session that begins writes first what W&B lacks: online, the rows after the last
step that the server names; offline, all of them, as uploading a run's second folder replaces what the first brought. A
resume from an earlier checkpoint leaves out the steps that the server has already. So no step is lost or doubled.

Nothing that W&B or the network does ends a training that has begun. Place in the flow: resolve.py calls `check_wandb`
before anything starts, trainer.py opens the logger when all else has been built. Only this module imports
wandb.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import re
import uuid
from pathlib import Path
from typing import Any

from metta_fast.config.keys import Config, WandbConfig, config_to_dict
from metta_fast.contracts.errors import UserError
from metta_fast.metrics.loggers import Row, Thinned, read_rows
from metta_fast.storage.run_folder import RunDir

GAP_S = 0.1
"""Between two rows: each takes W&B a millisecond, and on a GPU an epoch lasts a few."""
MAX_EARLIER = 10_000
"""Earlier rows written at most when a session begins."""
INIT_S = 30.0
"""How long the server may take to answer at the start."""
FINISH_S = 20.0
"""How long the end of a run waits for the upload: a cloud's notice is 30 s or more."""
REFUSED = re.compile(r"error 4\d\d")
"""What wandb says when the server is there and does not want us."""


def check_wandb(config: WandbConfig) -> None:
    """Stop before anything starts if W&B cannot be used as asked.

    Raises:
        UserError: it is not installed, the environment says otherwise, or online without a login.
    """
    if config.mode == "disabled":
        return
    where = f"wandb.mode={config.mode}"
    if importlib.util.find_spec("wandb") is None:
        raise UserError(
            f"{where}: the package wandb is not installed; pip install wandb, or wandb.mode=disabled"
        )
    given = os.environ.get("WANDB_MODE", config.mode)
    if given != config.mode:
        raise UserError(
            f"{where}, but WANDB_MODE={given} in the environment; unset it, or give wandb.mode={given}"
        )
    if config.mode == "online":
        import wandb

        wandb.setup(wandb.Settings(silent=True))  # else it asks the server for the account's name
        try:
            known = wandb.login(prompt=False, verify=False)
        except wandb.errors.Error as error:
            raise UserError(f"{where}: {error}; correct it, or give wandb.mode=offline") from error
        if not known:
            raise UserError(
                f"{where}: no login; type `wandb login`, or set WANDB_API_KEY, or give wandb.mode=offline, "
                f"which needs no account"
            )


class WandbLogger:
    """A run of W&B, going on with that of an earlier session. A Logger; `close` takes the run's exit code."""

    def __init__(self, config: Config, folder: RunDir) -> None:
        """Open it and write what it lacks of the folder's metrics.

        Raises:
            UserError: the server refuses: no permission, no such entity, a wrong key.
        """
        import wandb

        self._wandb: Any = wandb
        self._log = logging.getLogger(__name__)
        self._id = _run_id(folder.wandb)
        self._thinned = Thinned(GAP_S)
        try:
            self._run: Any = self._init(config, folder, config.wandb.mode)
        except wandb.errors.Error as error:
            if REFUSED.search(str(error)):
                raise UserError(
                    f"wandb.mode=online: the server refuses ({_line(error)}); see to wandb.entity, wandb.project "
                    f"and `wandb login --relogin`, or give wandb.mode=offline"
                ) from error
            self._log.warning("W&B cannot be reached (%s); this session is written offline", _line(error))
            wandb.teardown()  # its service would not take the same run again
            self._run = self._init(config, folder, "offline")
        self._upload = f"wandb sync {self._run.settings.sync_dir}" if self._run.offline else None
        self._log.info("W&B: %s", f"offline; upload with {self._upload}" if self._upload else self._run.url)
        self._there = self._run.step - 1 if self._run.resumed and not self._run.offline else -1
        """The last step that the server has."""
        self._run.define_metric("train/steps")
        self._run.define_metric("*", step_metric="train/steps")
        self._write_earlier(folder.metrics)

    def write(self, step: int, row: Row) -> None:
        if self._run is not None:
            self._emit(self._thinned.add(step, row))

    def close(self, exit_code: int = 0) -> None:
        """Write the rest and end the run; may be called twice. Waits for the upload up to FINISH_S."""
        if self._run is None:
            return
        self._emit(self._thinned.rest())
        run, self._run = self._run, None
        if run is None:  # it broke just now
            return
        try:
            run.finish(exit_code=exit_code)
        except Exception as error:  # whatever it is, the training is whole
            self._log.warning("W&B did not end well: %s", _line(error))

    def _init(self, config: Config, folder: RunDir, mode: str) -> Any:
        asked = config.wandb
        quiet = self._wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            init_timeout=INIT_S,
            finish_timeout=FINISH_S,
        )
        return self._wandb.init(
            mode=mode,
            project=asked.project,
            entity=asked.entity,
            group=asked.group,
            name=folder.name,
            id=self._id,
            resume="allow",
            dir=str(folder.path),
            config=config_to_dict(config),
            allow_val_change=True,
            settings=quiet,
        )

    def _write_earlier(self, metrics: Path) -> None:
        """The rows of earlier sessions that it lacks."""
        seconds = 0.0
        for row in read_rows(metrics):
            seconds = _number(row.get("train/seconds")) or seconds
        thinned = Thinned(max(GAP_S, seconds / MAX_EARLIER))
        for row in read_rows(metrics):
            step = int(row["train/steps"])
            if step > self._there:
                self._emit(thinned.add(step, row, now=_number(row.get("train/seconds")) or 0.0))
        self._emit(thinned.rest())

    def _emit(self, due: tuple[int, Row] | None) -> None:
        if due is None or self._run is None:
            return
        step, row = due
        if step <= self._there:
            return
        self._there = step
        figures = {name: value for name, value in row.items() if _number(value) is not None}
        try:
            self._run.log({**figures, "train/steps": step}, step=step)
        except Exception as error:  # whatever it is, the training goes on
            self._log.warning("W&B broke down, the run goes on without it: %s", _line(error))
            self._run = None


def _run_id(folder: Path) -> str:
    """The W&B run's id, made once and kept in the run's folder."""
    path = folder / "id"
    try:
        if path.exists() and (found := path.read_text().strip()):
            return found
        folder.mkdir(exist_ok=True)
        made = uuid.uuid4().hex[:12]
        path.write_text(made + "\n")
        return made
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}; make it writable, or wandb.mode=disabled"
        ) from error


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
