"""Lists changes to runs: checkpoints, run folder, resume, signals, saver, clocks, trainer."""

from tests.mutate.change import in_file

CHECKPOINT = "tests/run/test_saver.py tests/run/test_checkpoint.py tests/run/test_checkpoint_folders.py"
CHECKPOINT += " tests/run/test_disk.py"
RESUME = "tests/run/test_resume.py tests/run/test_init_from.py"
TRAINER = (
    "tests/run/test_saver.py tests/run/test_trainer.py tests/run/test_restart.py tests/run/test_clock.py"
)

CHANGES = [
    *in_file(
        "metta_fast/storage/checkpoint.py",
        CHECKPOINT,
        [
            (
                "        beside.rename(target)\n        sync_folder(folder)\n",
                "        beside.rename(target)\n",
                "a crash of the machine loses the renaming",
            ),
            (
                "if path not in kept and path != highest and path not in held]",
                "if path not in kept and path not in held]",
                "the best checkpoint is deleted",
            ),
            ("            found.make_ready(loads)\n", "", "a checkpoint that cannot be loaded is taken"),
            (
                "if int(match[2]) not in present",
                "if False",
                "a checkpoint that was to be replaced is lost",
            ),
            (
                "        if path.is_symlink() or not path.is_dir():\n",
                "        if False:\n",
                "a file among checkpoints is a problem each time",
            ),
            ("found[-max(keep, 1) :]", "found[-keep:]", "keep_checkpoints=0 keeps all"),
            (
                "        if step > after:\n",
                "        if step >= after:\n",
                "the checkpoint itself is put aside",
            ),
            (
                'not name.startswith("eval/")',
                'name.startswith("eval/")',
                "evaluations do not decide which is best",
            ),
            (
                "        if digest != expected:\n",
                "        if len(digest) != len(expected):\n",
                "altered files are loaded",
            ),
        ],
    ),
    *in_file(
        "metta_fast/storage/encoding.py",
        "tests/run/test_saved_states.py",
        [
            ("return kind([_inside(", "return list([_inside(", "tuples come back as lists"),
            ("value.bit_length() < _INT_BITS else", "True else", "a large int cannot be loaded"),
            (
                "return {_DICT: entries} if looks_tagged else entries",
                "return entries",
                "a dict comes back as an array",
            ),
            (" and kind is value.dtype.type:", ":", "a subclass comes back as a numpy scalar"),
            (
                "tensor.clone() if tensor.untyped_storage().nbytes() > own else tensor",
                "tensor",
                "a view is saved with its whole base",
            ),
        ],
    ),
    *in_file(
        "metta_fast/storage/durable.py",
        CHECKPOINT,
        [
            (
                "                os.fsync(self._file.fileno())\n",
                "                pass\n",
                "a crash of the machine leaves empty files",
            ),
            ("        sync_folder(folder.parent)\n", "", "a crash of the machine loses a new run"),
            (
                "            raise self._error\n",
                "            pass\n",
                "a full disk leaves a damaged checkpoint",
            ),
        ],
    ),
    *in_file(
        "metta_fast/storage/state_check.py",
        "tests/run/test_saved_states.py tests/run/test_snapshot.py",
        [
            (
                "if here and here == _address(before)",
                "if False",
                "an algorithm's state may be its own memory",
            ),
            (
                '        path = _shared(before["algorithm"],',
                '        path = None and _shared(before["algorithm"],',
                "no state is compared with the one before",
            ),
        ],
    ),
    *in_file(
        "metta_fast/storage/run_folder.py",
        "tests/run/test_run_dir.py tests/run/test_resume.py",
        [
            ("_SAFE.fullmatch(name)", "_SAFE.match(name)", "a name may leave the folder"),
            ("sorted(dated, reverse=True)", "sorted(dated)", "resume=auto takes the oldest run"),
        ],
    ),
    *in_file(
        "metta_fast/storage/run_lock.py",
        "tests/run/test_lock.py tests/run/test_run_dir.py",
        [
            (
                "                os.ftruncate(self._file, 0)\n",
                "                pass\n",
                "an ended process still owns the run",
            ),
            ("fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH | fcntl.LOCK_NB", "two processes train one run"),
            ("_TAKEN.add(self)", "pass", "a forked child keeps the lock"),
        ],
    ),
    *in_file(
        "metta_fast/storage/atomic_file.py",
        "tests/run/test_saver.py tests/run/test_checkpoint_folders.py",
        [
            ("        part.unlink(missing_ok=True)\n", "        pass\n", "a failed write leaves its part"),
            (
                "            os.fsync(file.fileno())\n",
                "            pass\n",
                "a crash of the machine empties config.yaml",
            ),
        ],
    ),
    *in_file(
        "metta_fast/run/resume.py",
        RESUME,
        [
            (" and path not in FREE\n", "\n", "another env.device is refused"),
            (
                "if not saved.trainer.deterministic:",
                "if True:",
                "a deterministic run is fitted to another machine",
            ),
            (
                "        if group in groups and before[path] != now[path] and not label:\n",
                "        if False:\n",
                "another typed env is ignored",
            ),
            (
                "    saved.resume, saved.distributed = None, composed.config.distributed\n",
                "    saved.resume, saved.distributed = composed.config.resume, composed.config.distributed\n",
                "the configuration says resume",
            ),
        ],
    ),
    *in_file(
        "metta_fast/run/take_over/fine_tune.py",
        RESUME,
        [
            (
                "if composed.typed(path) or (policy_typed and",
                "if (policy_typed and",
                "typed policy keys are overridden",
            )
        ],
    ),
    *in_file(
        "metta_fast/run/notices/watch.py",
        "tests/run/test_notices.py",
        [
            ("<= BEFORE_S", "<= 3 * BEFORE_S", "a run ends minutes before it has to"),
            ("        self._closed.set()\n", "        pass\n", "a thread is left over"),
            ("                self._save.set()\n", "                pass\n", "a probable end saves nothing"),
        ],
    ),
    *in_file(
        "metta_fast/run/notices/azure.py",
        "tests/run/test_notices.py",
        [
            (
                ' and self._name.lower() in map(str.lower, event["Resources"])',
                "",
                "another machine's eviction ends this run",
            ),
        ],
    ),
    *in_file(
        "metta_fast/run/signals.py",
        "tests/run/test_interrupt.py tests/run/test_trainer.py",
        [
            (
                "        finally:\n            self._allowed = None\n",
                "        finally:\n            pass\n",
                "a signal interrupts bookkeeping",
            ),
            (
                "signum == signal.SIGINT and now - self._since > ECHO_S",
                "signum == signal.SIGINT",
                "an echo of Ctrl-C quits",
            ),
            (" or (signum == signal.SIGHUP and before == signal.SIG_IGN)", "", "nohup does not keep a run"),
            ("            self.check()\n", "            pass\n", "an earlier signal waits for an epoch"),
            (
                "            self._repeats = -1  # the next Ctrl-C is the first\n",
                "",
                "Ctrl-C after a request quits",
            ),
        ],
    ),
    *in_file(
        "metta_fast/run/saver.py",
        TRAINER,
        [
            ("snapshot.step <= self._saved", "snapshot.step < self._saved", "a step is saved twice"),
            ("        if not snapshot.finite():\n", "        if False:\n", "NaN weights are saved"),
            ("        self._interval.restart(snapshot.epoch)\n", "", "the next checkpoint comes too soon"),
            ("        self.score.clear()\n", "", "a checkpoint's score is of all before"),
        ],
    ),
    *in_file(
        "metta_fast/run/snapshot.py",
        TRAINER,
        [
            (
                "(step - first_step) / max(now - first_time, 1e-9)",
                "(step - last_step) / max(now - last_time, 1e-9)",
                "the mean speed is the last one",
            ),
            (
                "(first_step, first_time + seconds), (last_step,",
                "(first_step, first_time), (last_step,",
                "evaluations lower the mean speed",
            ),
        ],
    ),
    *in_file(
        "metta_fast/run/clocks.py",
        TRAINER,
        [
            (
                "return self._seconds + time.monotonic()",
                "return time.monotonic()",
                "a resume forgets the seconds",
            ),
            ("        self._boundary_began += seconds\n", "", "evaluations count as boundary"),
        ],
    ),
    *in_file(
        "metta_fast/run/restart.py",
        TRAINER,
        [
            (
                '{"algorithm": parts.algorithm.state_dict(), "env": env}',
                'snapshot.states | {"env": env}',
                "a second restart loads what training has changed",
            ),
        ],
    ),
    *in_file(
        "metta_fast/run/trainer.py",
        TRAINER,
        [
            (
                "self._restarts >= self.config.vector.restart_workers",
                "self._restarts > self.config.vector.restart_workers",
                "one restart too many",
            ),
            (
                "            if self.interrupt.reason is not None:  # it went",
                "            if False:  # it went",
                "Ctrl-C that reached the workers first is an error",
            ),
            (
                "        self._save()\n        self.interrupt.check()\n",
                "        self.interrupt.check()\n",
                "the end is not saved",
            ),
            (
                "self._saver.snapshot.seconds\n",
                "self._clocks.seconds()\n",
                "a row's seconds are not its checkpoint's",
            ),
        ],
    ),
]
