"""mlp_network.h and thread_team.h for Cython: the network and the threads that share its work."""

from libc.stdint cimport uintptr_t

cdef extern from "policy/fused_act/mlp_network.h" nogil:
    enum: MF_MOST_HEADS
    enum: MF_TENSORS
    ctypedef struct mf_net:
        int layout, inputs, hidden, outputs, activation
        const float *scale
        const float **weight
    void mf_net_pack(mf_net *net)

cdef extern from "runtime/c/thread_team.h" nogil:
    ctypedef struct mf_team:
        pass
    int mf_team_start(mf_team *team)


cdef inline int set_nvec(int *nvec, given) except -1:
    """Copies the choices of each head; returns the number of heads."""
    if len(given) > MF_MOST_HEADS:
        raise ValueError(f"{len(given)} heads, expected at most {MF_MOST_HEADS}")
    for i, choices in enumerate(given):
        nvec[i] = choices
    return len(given)


cdef inline int point_weights(mf_net *net, addresses) except -1:
    """Sets the addresses of weight and bias of each layer."""
    if len(addresses) != MF_TENSORS:
        raise ValueError(f"{len(addresses)} tensors, expected {MF_TENSORS}")
    for i, address in enumerate(addresses):
        net.weight[i] = <const float *><uintptr_t>address
    return 0
