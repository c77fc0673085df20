"""Logs metrics to Weights & Biases: wandb.mode=offline (no account, no network) or online.

    python run_optimized.py wandb.mode=offline
    wandb sync runs/<name>/wandb/offline-run-…        # later, from any machine; the newest folder has all rows

metrics.jsonl is the authoritative record, and W&B's copy is kept equal to it. Rows are logged under their step
(`train/steps`); the rows of a tenth of a second are merged. Each session first writes the rows that W&B lacks. Online,
these are the rows after the server's last step. Offline, these are all rows, because uploading a run's second folder
replaces the first upload. A resume from an earlier checkpoint skips steps that the server already has. So no step is
lost or duplicated.

Once a training has started, no failure of W&B or the network ends it.

Place in the flow: resolve/resolve.py calls `check_wandb` before anything starts; the run opens the logger after
everything else has been built. Only this module imports wandb.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from metta_fast.config.keys import Config, WandbConfig, config_to_dict
from metta_fast.contracts.errors import UserError
from metta_fast.machine.installation import install_packages
from metta_fast.metrics.loggers import Row, Thinned, read_rows
from metta_fast.storage.run_folder import RunDir

if TYPE_CHECKING:
    from wandb.sdk.wandb_run import Run

GAP_S = 0.1
"""Least seconds between two rows: logging a row takes about a millisecond, and an epoch on a GPU only a few."""
MAX_EARLIER = 10_000
"""Most earlier rows written at the start of a session."""
INIT_S = 30.0
"""Seconds to wait for the server at the start."""
FINISH_S = 20.0
"""Seconds to wait for the upload at the end: cloud providers announce a shutdown at least 30 s ahead."""
REFUSED = re.compile(r"error 4\d\d")
"""Matches wandb's message when the server answers and refuses."""


def check_wandb(config: WandbConfig) -> None:
    """Checks before anything starts that W&B can be used as configured.

    Raises:
        UserError: wandb is not installed, WANDB_MODE contradicts, or online without a login.
    """
    if config.mode == "disabled":
        return
    where = f"wandb.mode={config.mode}"
    if importlib.util.find_spec("wandb") is None:
        raise UserError(
            f"{where}: the package wandb is not installed; type {install_packages('wandb')}, or give "
            "wandb.mode=disabled"
        )
    given = os.environ.get("WANDB_MODE", config.mode)
    if given != config.mode:
        raise UserError(
            f"{where} contradicts the environment variable WANDB_MODE={given}; unset it, or give wandb.mode={given}"
        )
    if config.mode == "online":
        import wandb

        wandb.setup(wandb.Settings(silent=True))  # otherwise it asks the server for the account's name
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
    """Logs to a W&B run, continuing that of an earlier session. A Logger whose `close` takes the run's exit code."""

    def __init__(self, config: Config, folder: RunDir) -> None:
        """Opens the W&B run and writes the rows of metrics.jsonl that it lacks.

        Raises:
            UserError: the server refuses (no permission, unknown entity, wrong key).
        """
        import wandb

        self._wandb = wandb
        self._log = logging.getLogger(__name__)
        self._id = _run_id(folder.wandb)
        self._thinned = Thinned(GAP_S)
        try:
            self._run: Run | None = self._init(
                config, folder, "online" if config.wandb.mode == "online" else "offline"
            )
        except wandb.errors.Error as error:
            if REFUSED.search(str(error)):
                raise UserError(
                    f"wandb.mode=online: the server refuses ({_line(error)}); check wandb.entity and wandb.project, "
                    f"type `wandb login --relogin`, or give wandb.mode=offline"
                ) from error
            self._log.warning("W&B cannot be reached (%s); this session is written offline", _line(error))
            wandb.teardown()  # the running service would refuse the same run id
            self._run = self._init(config, folder, "offline")
        self._upload = f"wandb sync {self._run.settings.sync_dir}" if self._run.offline else None
        self._log.info("W&B: %s", f"offline; upload with {self._upload}" if self._upload else self._run.url)
        self._there = self._run.step - 1 if self._run.resumed and not self._run.offline else -1
        """Last step that the server has."""
        self._run.define_metric("train/steps")
        self._run.define_metric("*", step_metric="train/steps")
        self._write_earlier(folder.metrics)

    def write(self, step: int, row: Row) -> None:
        if self._run is not None:
            self._emit(self._thinned.add(step, row))

    def close(self, exit_code: int = 0) -> None:
        """Writes the waiting rows and ends the W&B run, waiting up to FINISH_S for the upload; may be called twice."""
        if self._run is None:
            return
        self._emit(self._thinned.rest())
        run, self._run = self._run, None
        if run is None:  # logging the last row failed
            return
        try:
            run.finish(exit_code=exit_code)
        except Exception as error:  # no error of W&B may end a training
            self._log.warning("W&B failed at the end of the run: %s", _line(error))

    def _init(self, config: Config, folder: RunDir, mode: Literal["offline", "online"]) -> Run:
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
        """Writes the rows of earlier sessions that W&B lacks."""
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
        except Exception as error:  # no error of W&B may end a training
            self._log.warning("W&B failed, the run continues without it: %s", _line(error))
            self._run = None


def _run_id(folder: Path) -> str:
    """Returns the W&B run's id, created once and stored in the run's folder."""
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
            f"cannot write {path}: {error.strerror}; make it writable, or give wandb.mode=disabled"
        ) from error


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
