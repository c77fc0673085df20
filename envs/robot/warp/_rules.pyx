"""Runs robot tasks' rules in float32 over the arrays of MuJoCo Warp's CPU device (cpu.h): GPU runs without a GPU."""

from libc.stdint cimport int32_t, int64_t, uintptr_t


cdef extern from "cpu.h" nogil:
    ctypedef struct mf_task:
        int64_t params_size
        int32_t contact_forces
    const mf_task *mf_find_task(const char *name)
    ctypedef struct mf_world:
        const void *task
    ctypedef struct mf_world_rows:
        pass
    ctypedef struct mf_robot:
        pass
    int32_t mf_world_all(const char *name, const void *params, const mf_world *w, const mf_world_rows *rows)

ROBOT_BYTES = sizeof(mf_robot)
"""Bytes of one world's own state."""
STRUCT_BYTES = sizeof(mf_world), sizeof(mf_world_rows)
"""Sizes of the structs that engine.py has as ctypes."""


cdef const mf_task *find(str task) except NULL:
    cdef const mf_task *found = mf_find_task(task.encode())
    if found == NULL:
        raise ValueError(f"task {task!r} is not built in")
    return found


def task_facts(str task):
    """Returns (bytes of NAME_params in float32, whether the task reads contact forces)."""
    cdef const mf_task *found = find(task)
    return found.params_size, bool(found.contact_forces)


def run(str work, str task, uintptr_t params, uintptr_t world, uintptr_t rows):
    """Does the work first, act, step, weigh or begin to all worlds. params, world, rows: addresses of the C structs."""
    cdef mf_world *w = <mf_world *>world
    cdef bytes name = work.encode()
    cdef const char *named = name
    cdef int32_t done
    w.task = find(task)
    with nogil:
        done = mf_world_all(named, <const void *>params, w, <const mf_world_rows *>rows)
    if not done:
        raise ValueError(f"work {work!r}: expected first, act, step, weigh or begin")
