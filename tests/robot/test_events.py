"""Tests that an event is read only when all of it is written (envs/robot/faults.h)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import mujoco
import pytest

from tests.c_compiler import CC

ROBOT = Path(__file__).parents[2] / "envs/robot"
PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
#include "faults.h"

static mf_event event;

static void *slow(void *unused) { /* what mf_event_keep does, interrupted in the middle */
    usleep(50000);
    event.env = 7;
    atomic_store(&event.state, MF_WRITTEN);
    return unused;
}

int main(void) {
    pthread_t thread;
    const int free_one = mf_event_kept(&event);
    atomic_store(&event.state, MF_WRITING); /* another thread has found a fault, and this one a second fault */
    pthread_create(&thread, NULL, slow, NULL);
    mf_event_keep(&event, MF_FATAL, 9, 0, 0, "");
    const int kept = mf_event_kept(&event), env = event.env;
    pthread_join(thread, NULL);
    printf("free %d kept %d env %d\n", free_one, kept, env);
    return 0;
}
"""


@pytest.mark.skipif(not CC, reason="no C compiler here")
def test_a_fault_that_another_thread_is_writing_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "it.c").write_text(PROGRAM)
    headers = Path(mujoco.__file__).parent / "include"
    flags = ["-std=c11", "-O2", "-Wall", "-Werror", f"-I{ROBOT}", f"-I{headers}", "-pthread"]
    subprocess.run([*CC, *flags, "it.c", "-o", "it"], cwd=tmp_path, check=True)
    ran = subprocess.run([tmp_path / "it"], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "free 0 kept 1 env 7\n"
