"""The grid world's compiled half: parameters, and a batch of environments over grid_rules.h (through shell.h).

Nothing here allocates after construction but `state_dict` and the test door `observe`.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

import numpy as np

from metta_fast.envs.grid.names import GRID_CONFIG, OBSERVATIONS, STATS
from metta_fast.envs.native._batch cimport StateBatch


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
    int32_t grid_reset_range(void *batch, int32_t lo, int32_t hi) noexcept nogil
    int32_t grid_step_range(void *batch, int32_t lo, int32_t hi) noexcept nogil


cdef class GridParams:
    """Prepares a configuration for the rules: `GridParams(*grid_config(…))`."""

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
                               "build it again: metta-fast build grid")
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
        """Returns the C struct grid_params for a kernel; `maps`: address of the table of maps on the device, or 0."""
        cdef grid_params p = self.params
        p.maps = <const uint8_t *><uintptr_t>maps
        return (<const char *>&p)[:sizeof(grid_params)]

    def layout(self):
        """Returns sizes and offsets in bytes: of one env's state (see grid_state.h) and of the C structs."""
        return {"size": self.params.size, "agents_at": sizeof(GridHead), "objects_at": self.params.objects_at,
                "order_at": self.params.order_at, "cells_at": self.params.cells_at, "bits_at": self.params.bits_at,
                "plane_at": self.params.plane_at, "bit_words": self.params.bit_words,
                "head": sizeof(GridHead), "agent": sizeof(GridAgent), "object": sizeof(GridObject),
                "obs_size": self.params.obs_size}

    def observe(self, uint8_t[::1] state, str kind):
        """Returns all agents' observations of a kind from one env's state bytes: uint8 [num_agents, …]."""
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


cdef class GridBatch(StateBatch):
    """Environments first_env … first_env+num_envs-1: `metta_fast.contracts.env.EnvBatch`.

    Args:
        params: shared, not changed.
        total_envs: over which the first episodes are staggered (`reset(seed, stagger=True)`).
    """

    cdef grid_batch batch
    cdef GridParams params

    def __cinit__(self, GridParams params, int64_t first_env, int32_t num_envs, int32_t total_envs):
        cdef uint8_t[:, ::1] states
        self.take(first_env, num_envs, total_envs)
        self.allocate(params.params.size, "another grid configuration")
        states = self.states
        self.params = params
        self.batch.params = &params.params
        self.batch.states = &states[0, 0]
        self.batch.first_env = <uint32_t>first_env
        self.batch.max_steps = params.params.config.max_steps
        self.context = &self.batch
        self.reset_range, self.step_range = grid_reset_range, grid_step_range
        self.seed, self.stagger_envs = &self.batch.seed, &self.batch.stagger_envs

    def bind(self, rows):
        """Takes the slab's rows (`metta_fast.contracts.env.Rows`) of this batch's agents; kept until the next bind."""
        sizes = {"obs": (np.uint8, self.params.params.obs_size), "action": (np.int32, 2),
                 "stats": (np.float32, len(STATS))}
        self.point(rows, self.num_envs * self.params.params.config.num_agents, sizes, <void **>&self.batch.rows)
