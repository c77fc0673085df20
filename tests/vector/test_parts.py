"""Tests the backends' parts: ranges and slices, joined states, the pool, and the bell without a futex."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.contracts.batch_state import cut, join
from metta_fast.contracts.slab import slices, split
from metta_fast.envs.native._pool import Pool
from metta_fast.envs.native._sync import NOTHING, Memory, Ready
from tests.c_compiler import CC
from tests.vector.toys import JOB


@given(st.integers(1, 60), st.data())
def test_slices_cover_every_environment_once(envs, data):
    blocks, workers = (data.draw(st.integers(1, envs)) for _ in range(2))
    found = slices(envs, blocks, workers)
    assert [e for s in found for e in range(s.start, s.stop)] == list(range(envs))
    for s in found:
        assert split(envs, blocks)[s.block][0] <= s.start < s.stop <= split(envs, blocks)[s.block][1]
        assert split(envs, workers)[s.worker][0] <= s.start < s.stop <= split(envs, workers)[s.worker][1]
    sizes = [hi - lo for lo, hi in split(envs, blocks)]
    assert max(sizes) - min(sizes) <= 1


def test_states_are_joined_and_cut_along_the_environments():
    a = {"x": np.arange(2), "inner": {"l": ["p", "q"]}, "seed": 5}
    b = {"x": np.arange(3), "inner": {"l": ["r", "s", "t"]}, "seed": 5}
    whole = join([a, b])
    np.testing.assert_equal(whole, {"x": [0, 1, 0, 1, 2], "inner": {"l": list("pqrst")}, "seed": 5})
    np.testing.assert_equal(cut(whole, 2, 5), b)
    with pytest.raises(ValueError, match="'seed' differs between batches"):
        join([a, {**b, "seed": 6}])
    with pytest.raises(ValueError, match="different keys"):
        join([a, {"x": b["x"]}])


def test_memory_lives_as_long_as_its_views():
    view = np.frombuffer(Memory(10000), np.uint8)
    assert view.ctypes.data % 4096 == 0
    view[:] = 7
    assert view.sum() == 70000


POOL = r"""
#include "pool.h"
#include <stdio.h>

enum { JOBS = 5 };
static const int sizes[JOBS] = {1, 7, 64, 33, 2};
#ifdef PLANTED_RACE /* what ThreadSanitizer must find: threads of several jobs count here without care */
static volatile int careless;
#endif
static _Atomic int counts[JOBS][64];
static int plain[JOBS][64]; /* written by the pool's threads, read by the receiver */

static int32_t job(void *ctx, int32_t lo, int32_t hi) {
    for (int32_t i = lo; i < hi; i++)
        atomic_fetch_add(&counts[(intptr_t)ctx][i], 1), plain[(intptr_t)ctx][i]++;
#ifdef PLANTED_RACE
    careless++;
#endif
    return 0;
}

int main(int argc, char **argv) { /* submit each job `rounds` times, again as soon as it comes back */
    const int threads = atoi(argv[1]), rounds = atoi(argv[2]), spin = atoi(argv[argc - 1]);
    mf_ready *ready = aligned_alloc(64, mf_ready_size(JOBS));
    mf_ready_init(ready, JOBS);
    mf_pool *pool = mf_pool_new(JOBS, threads, spin, ready);
    for (intptr_t j = 0; j < JOBS; j++)
        mf_pool_job(pool, j, job, (void *)j, sizes[j], sizes[j] < 8 ? sizes[j] : 8);
    if (mf_pool_start(pool))
        return 1;
    int left[JOBS], flying = JOBS;
    for (int j = 0; j < JOBS; j++)
        left[j] = rounds, mf_pool_submit(pool, j);
    while (flying) {
        const int64_t start = mf_now_ns();
        int32_t j = -1;
        while (j < 0 && mf_now_ns() - start < 10000000000)
            j = mf_ready_wait(ready, spin, 1000000000);
        if (j < 0)
            return puts("stuck"), 1;
        left[j]--;
        for (int i = 0; i < sizes[j]; i++)
            if (counts[j][i] != rounds - left[j] || plain[j][i] != counts[j][i])
                return printf("job %d env %d ran %d times\n", j, i, counts[j][i]), 1;
        if (left[j])
            mf_pool_submit(pool, j);
        else
            flying--;
    }
    printf("ended %d\n", mf_pool_free(pool, 10000000000));
    return 0;
}
"""


def compiled(folder, source, *flags):
    """The path of a C program built against envs/native."""
    (folder / "it.c").write_text(source)
    native, c = (Path(__file__).parents[2] / folder for folder in ("envs/native", "metta_fast/runtime/c"))
    subprocess.run(
        [
            *CC,
            "-std=c11",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-D_GNU_SOURCE",
            *flags,
            f"-I{native}",
            f"-I{c}",
            "it.c",
            "-o",
            "it",
            "-pthread",
        ],
        cwd=folder,
        check=True,
    )
    return folder / "it"


@pytest.mark.parametrize("flags", [[], ["-DMF_NO_FUTEX"]])
def test_the_pool_runs_every_chunk_once(tmp_path, flags):
    program = compiled(tmp_path, POOL, *flags)
    for threads in (1, 2, 3, 6):
        for spin_ns in (0, 20000):
            out = subprocess.run(
                [program, str(threads), "1500", str(spin_ns)], capture_output=True, text=True, timeout=60
            )
            assert out.stdout == "ended 1\n", out


with_tsan = pytest.mark.skipif(
    not CC or "ziglang" in CC,
    reason="needs gcc's ThreadSanitizer (ziglang would first compile its own for minutes)",
)


def watched(folder, *flags):
    """POOL under ThreadSanitizer: its exit status and what it wrote."""
    program = compiled(folder, POOL, "-g", "-fsanitize=thread", *flags)
    out = subprocess.run([program, "3", "300", "20000"], capture_output=True, text=True, timeout=60)
    return out.returncode, out.stdout + out.stderr


@with_tsan
@pytest.mark.parametrize("flags", [[], ["-DMF_NO_FUTEX"]])
def test_thread_sanitizer_finds_no_race_in_the_pool(tmp_path, flags):
    assert watched(tmp_path, *flags) == (0, "ended 1\n")


@with_tsan
def test_thread_sanitizer_finds_a_planted_race(tmp_path):
    for _ in range(10):  # on a loaded machine the threads may happen to run one after the other
        status, said = watched(tmp_path, "-DPLANTED_RACE")
        if status:
            break
    assert status != 0
    assert "data race" in said


NO_STACK = """
from metta_fast.envs.native._pool import Pool
from metta_fast.envs.native._sync import Ready
from metta_fast.contracts.errors import UserError
from metta_fast.policy.fused_act._c_act import Actor
from metta_fast.algorithms.ppo.c._mlp_update import Networks

for make in (
    lambda: Pool(Ready(1), [], 3),
    lambda: Actor(0, 0, 16, [2], 4, 0.0),
    lambda: Networks([(0, 9, 3)], True, 16, 0, 0, [2], 0, 4, 0.0, 64),
):
    try:
        make()
    except UserError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the stack's limit is a thread's size")
def test_threads_that_cannot_be_had_are_told_with_the_cure():
    more_than_any_address = 200 << 40
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    if hard != resource.RLIM_INFINITY:
        pytest.skip(f"the stack's hard limit is {hard} bytes here")
    ran = subprocess.run(
        [sys.executable, "-c", NO_STACK],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (more_than_any_address, hard)),
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    told = ran.stdout.splitlines()
    assert len(told) == 3, ran.stderr
    for line in told:
        assert line.startswith("cannot start 3 threads: ")
        assert "trainer.torch_threads" in line


def test_an_idle_pool_uses_no_processor_time():
    ready = Ready(1, spin_s=50e-6)
    function = JOB(lambda *_: 0)
    pool = Pool(ready, [(ctypes.cast(function, ctypes.c_void_p).value, 0, 4)], 6, spin_s=50e-6, chunks=4)
    pool.step(0)
    assert ready.wait(5.0) == 0
    time.sleep(0.1)
    before = time.process_time()
    assert ready.wait(0.5) == NOTHING
    assert time.process_time() - before < 0.02
    pool.close(5.0)


BELL = r"""
#include "board.h"
#include "pool.h"
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *ring(void *bell) {
    usleep(50000);
    mf_bell_ring((mf_bell *)bell, 1);
    return NULL;
}

int main(void) { /* ping-pong between two processes over a board, then a wait that times out */
    mf_board layout;
    mf_board_layout(&layout, 1, 2);
    mf_board *b = mmap(NULL, layout.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mf_board_init(b, 1, 2);
    for (int i = 0; i < 2; i++)
        mf_board_block(b, i)->last = 1;
    if (fork() == 0) {
        for (int done = 0; done < 4000;) {
            int32_t box = mf_board_next(b, 0, 0, -1);
            if (box >= 0)
                mf_board_finish(b, 0, box), done++;
        }
        _exit(0);
    }
    mf_board_post(b, 0, MF_OP_STEP);
    mf_board_post(b, 1, MF_OP_STEP);
    for (int got = 0, sent = 2; got < 4000;) {
        int32_t block = mf_ready_wait(mf_board_ready(b), 1000, 1000000000);
        if (block >= 0 && ++got && sent < 4000)
            mf_board_post(b, block, MF_OP_STEP), sent++;
    }
    wait(NULL);
    mf_bell bell;
    mf_bell_init(&bell);
    int64_t start = mf_now_ns();
    mf_bell_wait(&bell, mf_bell_seen(&bell), 20000000);
    int64_t waited = mf_now_ns() - start;
    pthread_t t;
    uint32_t seen = mf_bell_seen(&bell);
    pthread_create(&t, NULL, ring, &bell);
    start = mf_now_ns();
    mf_bell_wait(&bell, seen, 90000000);
    int64_t rung = mf_now_ns() - start;
    pthread_join(t, NULL);
    printf("futex %d waited %d rung %d\n", MF_FUTEX, waited > 19000000, rung < 85000000);
    return 0;
}
"""


@pytest.mark.parametrize("flags", [[], ["-DMF_NO_FUTEX"]])
def test_bells_and_board_with_and_without_a_futex(tmp_path, flags):
    program = compiled(tmp_path, BELL, *flags)
    out = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True).stdout
    futex = int(not flags and sys.platform.startswith("linux"))
    assert out == f"futex {futex} waited 1 rung 1\n"
