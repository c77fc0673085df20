"""cpu_grid.h and team.h for Cython: a grid policy's network and the threads that share its work."""

from libc.stdint cimport uintptr_t

cdef extern from "policy/fused_act/grid_network.h" nogil:
    enum: MF_MOST_HEADS
    ctypedef struct mf_grid_net:
        int layout, hidden, outputs, heads
        int *nvec
        const float *scale
        const float *w1
        const float *b1
        const float *w2
        const float *b2
        const float *w3
        const float *b3
    void mf_grid_net_pack(mf_grid_net *net)

cdef extern from "runtime/c/thread_team.h" nogil:
    ctypedef struct mf_team:
        pass
    int mf_team_start(mf_team *team)


cdef inline int describe(mf_grid_net *net, int layout, uintptr_t scale, int hidden, nvec) except -1:
    """Its sizes. scale: float32 [256]; nvec: of the heads."""
    if not 0 < len(nvec) <= MF_MOST_HEADS:
        raise ValueError(f"{len(nvec)} heads, expected 1 to {MF_MOST_HEADS}")
    net.layout, net.hidden, net.heads = layout, hidden, len(nvec)
    net.scale, net.outputs = <const float *>scale, sum(nvec) + 1
    for i, choices in enumerate(nvec):
        net.nvec[i] = choices
    return 0


cdef inline void point_weights(mf_grid_net *net, uintptr_t w1, uintptr_t b1, uintptr_t w2, uintptr_t b2, uintptr_t w3,
                               uintptr_t b3) noexcept:
    """Where the weights lie."""
    net.w1, net.b1, net.w2 = <const float *>w1, <const float *>b1, <const float *>w2
    net.b2, net.w3, net.b3 = <const float *>b2, <const float *>w3, <const float *>b3
