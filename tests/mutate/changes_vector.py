"""Lists changes to vectors, their shared memory, threads and processes."""

from tests.mutate.change import in_file

CONTRACT = "tests/vector/test_order.py tests/vector/test_contract.py"
PARTS = "tests/vector/test_order.py tests/vector/test_parts.py"
FAULTS = "tests/vector/test_faults.py"

CHANGES = [
    *in_file(
        "metta_fast/vector/base.py",
        "tests/vector/test_notes.py " + CONTRACT,
        [
            (" or self.blocks[index] is not block", "", "another vector's block is accepted"),
            ('casting="same_kind"', 'casting="unsafe"', "actions are rounded without a word"),
            (
                "if self._box and not np.isfinite(block.rows.action).all():",
                "if False:",
                "NaN reaches an environment",
            ),
            (
                "if kind not in self._told and kind not in new",
                "if kind not in new",
                "a note is told again and again",
            ),
            (
                "if index == 0 and self.watchers",
                "if self.watchers",
                "the watcher runs during steps",
            ),
            (
                "self._waited += min(passed, 2 * LOOK_S)",
                "self._waited += passed",
                "a paused program counts as hung",
            ),
        ],
    ),
    *in_file(
        "metta_fast/contracts/slab.py",
        PARTS,
        [
            (
                "        at += _bytes(shape, dtype)\n",
                "        at += count * dtype.itemsize\n",
                "arrays are not aligned",
            ),
            (
                "Slice(b, w, max(lo, first), min(hi, last))",
                "Slice(b, w, max(lo, first), hi)",
                "slices overlap",
            ),
        ],
    ),
    *in_file(
        "metta_fast/contracts/batch_state.py",
        PARTS + " tests/vector/test_contract.py",
        [
            (
                "    if any(v != values[0] for v in values):",
                "    if False:",
                "batches that differ are joined",
            ),
            ('return value.copy(order="K")', "return value", "a snapshot changes with later steps"),
            (
                "getattr(rows, name).copy() for",
                "getattr(rows, name) for",
                "saved rows change with later steps",
            ),
            (
                "value.shape != to.shape or value.dtype != to.dtype",
                "value.shape != to.shape",
                "rows of another dtype are loaded",
            ),
            (
                "[entry for value in values for entry in value]",
                "list(values[0])",
                "lists lose other batches' entries",
            ),
        ],
    ),
    *in_file(
        "metta_fast/vector/threads.py",
        CONTRACT,
        [
            (
                "                batch.reset(seed, stagger=stagger)\n",
                "                batch.reset(seed)\n",
                "threads do not stagger episodes",
            ),
            (
                "split(hi - lo, min(num_threads, hi - lo))",
                "split(hi - lo, num_threads)",
                "threads get no environment",
            ),
        ],
    ),
    *in_file(
        "metta_fast/vector/worker.py",
        CONTRACT,
        [
            (
                "batches[box].reset(station.seed, stagger=station.stagger)",
                "batches[box].reset(station.seed)",
                "workers do not stagger episodes",
            ),
            (
                "factory.make_batch(job.envs.first + s.start,",
                "factory.make_batch(s.start,",
                "workers ignore first_env",
            ),
        ],
    ),
    *in_file(
        "metta_fast/vector/workers.py",
        FAULTS,
        [
            (" or not self.board.is_busy(w):", ":", "an idle worker counts as hung"),
            (
                "self._fail(self._raised(w), env=env if env >= 0 else None,",
                "self._fail(self._raised(w), env=None,",
                "an error does not name its environment",
            ),
        ],
    ),
    *in_file(
        "metta_fast/vector/workers.py",
        "tests/vector/test_env_exits.py",
        [
            (
                "env=env if env >= 0 else None,\n                worker=raised[0],",
                "env=None,\n                worker=raised[0],",
                "an error of close() does not name its environment",
            ),
        ],
    ),
    *in_file(
        "metta_fast/vector/launcher.py",
        FAULTS,
        [
            (
                "            kill_group(pid)\n            yield",
                "            yield",
                "a dead worker's children live on",
            )
        ],
    ),
    *in_file(
        "envs/native/_sync.pyx",
        "tests/vector/test_order.py " + FAULTS,
        [
            (
                '        if self.in_flight:\n            raise ValueError("blocks are in flight")\n',
                "",
                "blocks in flight are held",
            ),
            ("    mf_board_worker(board, worker).fault_env = env\n", "", "a fault has no environment"),
        ],
    ),
    *in_file(
        "metta_fast/runtime/c/pool.h",
        PARTS + " tests/robot/test_faults.py tests/vector/test_faults.py",
        [
            (
                "fn(job->ctx, lo, end < job->n ? end : job->n)",
                "fn(job->ctx, lo, end)",
                "the last chunk runs past the end",
            ),
            ("if (t < ticket && atomic_load", "if (atomic_load", "the newest job is done first"),
            ("        atomic_store(&job->fault, 1);\n", "", "a worker's pool hides a fault"),
            ("        mf_ready_fault(pool->ready);\n", "", "a thread's fault waits for the timeout"),
            (
                "    if (atomic_load(&pool->alive) > 0)\n        return 0;\n",
                "",
                "close waits for a hung thread",
            ),
        ],
    ),
    *in_file(
        "metta_fast/runtime/c/sync.h",
        PARTS,
        [
            ("    atomic_fetch_add(&bell->word, 1);\n", "", "a ring is missed"),
            (
                "        atomic_store_explicit(slot, 0, memory_order_relaxed);\n",
                "",
                "a block is received twice",
            ),
        ],
    ),
    *in_file(
        "envs/native/board.h",
        PARTS,
        [
            (" && request < ticket) {", ") {", "a worker does the newest mail first"),
            (
                "    atomic_fetch_add_explicit(&mf_board_worker(b, w)->progress, 1, memory_order_relaxed);\n",
                "",
                "a slow worker counts as hung",
            ),
        ],
    ),
]
