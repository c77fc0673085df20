"""Runs a rollout's step of a grid policy on the CPU (c_act.h), on several threads, without the GIL.

Called by c_act.py, which checks the arguments. Numbers named as arrays are addresses of contiguous ones.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from metta_fast.contracts.errors import no_threads

from metta_fast.policy.fused_act.mlp_network cimport (
    mf_net, mf_net_pack, mf_team, mf_team_start, point_weights, set_nvec
)

cdef extern from "c_act.h" nogil:
    ctypedef struct mf_actor:
        mf_net net
        int heads
        int *nvec
        mf_team team
    ctypedef struct mf_act_rows:
        int rows
        const uint8_t *obs
        uint8_t *kept
        const float *noise
        int32_t *action
        int32_t *given
        float *logprob
        float *value
    mf_actor *mf_actor_new(const mf_net *net, int threads, int64_t spin_ns)
    void mf_actor_free(mf_actor *actor)
    void mf_act(mf_actor *actor, const mf_act_rows *rows)


cdef class Actor:
    """Owns a network's copies of the weights, and the threads."""

    cdef mf_actor *actor

    def __cinit__(self, int layout, uintptr_t scale, int hidden, nvec, int threads, double spin_s):
        """scale: float32 [256]; nvec: of the heads; threads: the caller is one of them; spin_s: how long idle ones spin."""
        cdef mf_net net
        net.layout, net.inputs, net.hidden, net.outputs, net.activation = layout, 0, hidden, sum(nvec) + 1, 0
        net.scale = <const float *>scale
        self.actor = mf_actor_new(&net, threads, <int64_t>(spin_s * 1e9))
        if self.actor == NULL:
            raise MemoryError
        self.actor.heads = set_nvec(self.actor.nvec, nvec)
        error = mf_team_start(&self.actor.team)
        if error:
            raise no_threads(threads - 1, error)

    def __dealloc__(self):
        if self.actor != NULL:
            mf_actor_free(self.actor)

    def weights(self, addresses):
        """Copies the present weights; the first layer's are read in place. addresses: of each layer's weight and bias."""
        cdef mf_net *net = &self.actor.net
        point_weights(net, addresses)
        with nogil:
            mf_net_pack(net)

    def act(self, int count, uintptr_t obs, uintptr_t kept, uintptr_t noise, uintptr_t action, uintptr_t given,
            uintptr_t logprob, uintptr_t value):
        """uint8 [count, bytes] twice, float32 [count, heads]; int32 [count, heads] twice, float32 [count] twice.
        kept: gets the bytes. noise 0: values alone."""
        cdef mf_act_rows rows
        rows.rows, rows.obs, rows.noise = count, <const uint8_t *>obs, <const float *>noise
        rows.kept = <uint8_t *>kept
        rows.action, rows.given = <int32_t *>action, <int32_t *>given
        rows.logprob, rows.value = <float *>logprob, <float *>value
        with nogil:
            mf_act(self.actor, &rows)
