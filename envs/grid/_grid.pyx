"""The grid world's compiled half: parameters, and a batch of environments over grid_rules.h (through shell.h).

Nothing here allocates after construction but `state_dict` and the test door `observe`.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

import numpy as np

from metta_fast.envs.grid.config import GRID_CONFIG, OBSERVATIONS, STATS


cdef extern from "grid_rules.h" nogil:
    ctypedef struct GridConfig:
        int32_t height, width, num_agents, max_steps, observation
    ctypedef struct grid_params:
        GridConfig config
        const uint8_t *maps
        int64_t size
        int32_t objects_at, order_at, cells_at, bits_at, plane_at, bit_words, plane_stride, obs_size
    ctypedef struct GridHead:
        pass
    ctypedef struct GridAgent:
        pass
    ctypedef struct GridObject:
        pass
    void grid_prepare(grid_params *p)
    void grid_observe(const grid_params *p, uint8_t *state, int32_t agent, uint8_t *out, int32_t lane, int32_t lanes)

cdef extern from *:
    """
    #define MF_ENV grid
    #include "shell.h"
    """
    ctypedef struct grid_rows:
        const int32_t *action
        uint8_t *obs
        float *reward
        uint8_t *terminal
        uint8_t *truncation
        uint8_t *mask
        uint8_t *reset
        float *stats
    ctypedef struct grid_batch:
        const grid_params *params
        uint8_t *states
        uint64_t seed
        uint32_t first_env
        int32_t stagger_envs, max_steps
        grid_rows rows
    void grid_reset_range(void *batch, int32_t lo, int32_t hi) noexcept nogil
    int32_t grid_step_range(void *batch, int32_t lo, int32_t hi) noexcept nogil


cdef class GridParams:
    """A configuration made ready for the rules: `GridParams(*grid_config(…))`."""

    cdef grid_params params
    cdef object table
    cdef readonly object record
    """The GRID_CONFIG record, shape ()."""

    def __cinit__(self, record, table=None):
        cdef const uint8_t[::1] raw
        cdef const uint8_t[:, :, ::1] maps
        self.record = np.asarray(record, dtype=GRID_CONFIG).reshape(()).copy()
        if GRID_CONFIG.itemsize != sizeof(GridConfig):
            raise RuntimeError(f"GRID_CONFIG has {GRID_CONFIG.itemsize} bytes, GridConfig {sizeof(GridConfig)}: "
                               "build the extensions again (python setup.py build_ext --inplace)")
        raw = np.frombuffer(self.record.tobytes(), np.uint8)
        memcpy(&self.params.config, &raw[0], sizeof(GridConfig))
        self.params.maps = NULL
        if table is not None:
            self.table = np.ascontiguousarray(table, dtype=np.uint8)
            if self.table.shape != (self.record["num_maps"], self.record["height"], self.record["width"]):
                raise ValueError(f"table has shape {self.table.shape}, the record says "
                                 f"{(int(self.record['num_maps']), int(self.record['height']), int(self.record['width']))}")
            maps = self.table
            self.params.maps = &maps[0, 0, 0]
        elif self.record["map_kind"] == 0:
            raise ValueError("a record of map_kind 0 needs its table of maps")
        grid_prepare(&self.params)

    def gpu_bytes(self, uint64_t maps):
        """The C struct grid_params, for a kernel; `maps`: address of the table of maps on the device, or 0."""
        cdef grid_params p = self.params
        p.maps = <const uint8_t *><uintptr_t>maps
        return (<const char *>&p)[:sizeof(grid_params)]

    def layout(self):
        """Sizes and offsets in bytes: of one env's state (see grid_state.h) and of the C structs."""
        return {"size": self.params.size, "agents_at": sizeof(GridHead), "objects_at": self.params.objects_at,
                "order_at": self.params.order_at, "cells_at": self.params.cells_at, "bits_at": self.params.bits_at,
                "plane_at": self.params.plane_at, "bit_words": self.params.bit_words,
                "head": sizeof(GridHead), "agent": sizeof(GridAgent), "object": sizeof(GridObject),
                "obs_size": self.params.obs_size}

    def observe(self, uint8_t[::1] state, str kind):
        """All agents' observations of a kind from one env's state bytes: uint8 [num_agents, …]."""
        cdef grid_params p = self.params
        cdef int32_t agent
        cdef uint8_t[:, ::1] rows
        p.config.observation = list(OBSERVATIONS).index(kind)
        grid_prepare(&p)
        if state.shape[0] != p.size:
            raise ValueError(f"state has {state.shape[0]} bytes, expected {p.size}")
        out = np.full((p.config.num_agents, p.obs_size), 0xA5, np.uint8)
        rows = out
        for agent in range(p.config.num_agents):
            grid_observe(&p, &state[0], agent, &rows[agent, 0], 0, 1)
        return out.reshape(p.config.num_agents, *OBSERVATIONS[kind])


cdef class GridBatch:
    """Environments first_env … first_env+num_envs-1: `metta_fast.contracts.env.EnvBatch`.

    Args:
        params: shared, not changed.
        total_envs: over which the first episodes are staggered (`reset(seed, stagger=True)`).
    """

    cdef grid_batch batch
    cdef GridParams params
    cdef int32_t num_envs, total_envs
    cdef object rows
    cdef bint started
    cdef readonly object states
    """uint8 [num_envs, bytes of one state]."""

    def __cinit__(self, GridParams params, int64_t first_env, int32_t num_envs, int32_t total_envs):
        cdef uint8_t[:, ::1] states
        if num_envs < 1 or first_env < 0 or first_env + num_envs > total_envs:
            raise ValueError(f"envs {first_env} … {first_env + num_envs - 1} are not among {total_envs}")
        block = np.zeros(num_envs * params.params.size + 64, np.uint8)
        start = -block.ctypes.data % 64
        self.states = block[start:start + num_envs * params.params.size].reshape(num_envs, -1)
        states = self.states
        self.params = params
        self.num_envs, self.total_envs = num_envs, total_envs
        self.batch.params = &params.params
        self.batch.states = &states[0, 0]
        self.batch.first_env = <uint32_t>first_env
        self.batch.max_steps = params.params.config.max_steps
        self.started = False

    def bind(self, rows):
        """Take the slab's rows (`metta_fast.contracts.env.Rows`) of this batch's agents; kept until the next bind."""
        cdef uintptr_t agents = self.num_envs * self.params.params.config.num_agents
        cdef dict at = {}
        wanted = {"obs": (rows.obs["obs"], np.uint8, self.params.params.obs_size), "action": (rows.action, np.int32, 2),
                  "reward": (rows.reward, np.float32, 1), "stats": (rows.stats, np.float32, len(STATS)),
                  **{name: (getattr(rows, name), np.bool_, 1) for name in ("terminal", "truncation", "mask", "reset")}}
        for name, (array, dtype, width) in wanted.items():
            if array.dtype != dtype or array.shape[0] != agents or array.size != agents * width:
                raise ValueError(f"rows.{name} is {array.dtype} {array.shape}, expected {np.dtype(dtype)} with "
                                 f"{width} numbers for each of {agents} agents")
            if not array.flags.c_contiguous:
                raise ValueError(f"rows.{name} must be contiguous")
            at[name] = array.ctypes.data
        self.rows = rows
        self.batch.rows.obs = <uint8_t *><uintptr_t>at["obs"]
        self.batch.rows.action = <const int32_t *><uintptr_t>at["action"]
        self.batch.rows.reward = <float *><uintptr_t>at["reward"]
        self.batch.rows.terminal = <uint8_t *><uintptr_t>at["terminal"]
        self.batch.rows.truncation = <uint8_t *><uintptr_t>at["truncation"]
        self.batch.rows.mask = <uint8_t *><uintptr_t>at["mask"]
        self.batch.rows.reset = <uint8_t *><uintptr_t>at["reset"]
        self.batch.rows.stats = <float *><uintptr_t>at["stats"]

    def reset(self, uint64_t seed, *, bint stagger=False):
        """Start every env anew and write row 0; what env i does depends on (seed, i) only."""
        if self.rows is None:
            raise RuntimeError("bind() must come before reset()")
        self.batch.seed = seed
        self.batch.stagger_envs = self.total_envs if stagger else 0
        with nogil:
            grid_reset_range(&self.batch, 0, self.num_envs)
        self.started = True

    def step(self):
        """Advance every env by one step, reading actions from and writing to the bound rows."""
        if not self.started or self.rows is None:
            raise RuntimeError("bind() and reset() must come before step()")
        with nogil:
            grid_step_range(&self.batch, 0, self.num_envs)

    def native_job(self):
        """(address of `int32_t fn(void *ctx, int32_t lo, int32_t hi)`, address of ctx, num_envs); see EnvBatch."""
        return <uintptr_t>&grid_step_range, <uintptr_t>&self.batch, self.num_envs

    def state_dict(self):
        """{"states": uint8 [num_envs, bytes], "seed": int}: all that is needed to go on bit for bit."""
        return {"states": self.states.copy(), "seed": int(self.batch.seed)}

    def load_state_dict(self, state):
        """Go on from `state_dict()` of the same envs and configuration; the rows are the caller's to restore."""
        states = np.asarray(state["states"], np.uint8)
        if states.shape != self.states.shape:
            raise ValueError(f"state is {states.shape} (envs, bytes), expected {self.states.shape}: it was saved with "
                             "another grid configuration or another number of environments")
        self.states[...] = states
        self.batch.seed = state["seed"]
        self.started = True

    def close(self):
        """Nothing to free by hand."""
