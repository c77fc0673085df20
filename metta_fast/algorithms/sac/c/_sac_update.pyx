"""Runs updates of SAC and TD3 on the CPU (sac_update.h), without the GIL.

Called by sac_update.py, which checks the arguments. Numbers named as arrays are addresses of contiguous ones.
"""

from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport calloc, free

from metta_fast.contracts.errors import no_threads

cdef extern from "sac_state.h" nogil:
    enum: MF_MOST_LAYERS
    enum: MF_MOST_LEAVES
    enum: MF_SAC_SUMS
    ctypedef struct mf_tensor:
        float *weight
        float *first
        float *second
        float *target
        int rows, columns
    ctypedef struct mf_layer:
        mf_tensor weight
        mf_tensor bias
    ctypedef struct mf_mlp:
        int layers
        mf_layer *layer
    ctypedef struct mf_leaf:
        const float *rows
        const float *shift
        const float *scale
        int size
    ctypedef struct mf_view:
        mf_leaf *leaf
        int leaves, size
    ctypedef struct mf_batch:
        const int64_t *index
        const int64_t *after
        const float *action
        const float *reward
        const float *discount
        const float *weight
        const float *noise
    ctypedef struct mf_rates:
        double rate, beta1, beta2, epsilon
    ctypedef struct mf_rule:
        int width, squash, soft, state_std
        float noise, clip, target_entropy, tau
        int adapts, delay
    ctypedef struct mf_team:
        pass
    ctypedef struct mf_sac:
        mf_rule rule
        int members, batch, wide
        mf_mlp actor
        mf_mlp *critic
        mf_tensor log_std
        mf_view actor_view
        mf_view critic_view
        float *log_alpha
        float *log_alpha_first
        float *log_alpha_second
        mf_team team
    void mf_sac_free(mf_sac *u)
    int mf_team_start(mf_team *team)

cdef extern from "sac_update.h" nogil:
    mf_sac *mf_sac_new(const mf_rule *rule, int members, int batch, const int *actor, int actor_layers, int actor_kind,
                       const int *critic, int critic_layers, int critic_kind, int threads, int wide, int64_t spin_ns)
    void mf_sac_pack(const mf_sac *u)
    void mf_sac_run(mf_sac *u, const mf_batch *batches, int count, int64_t first, const mf_rates *rates, double *steps,
                    double *sums)


MOST_LAYERS = MF_MOST_LAYERS
MOST_LEAVES = MF_MOST_LEAVES


cdef class Updates:
    """Owns the networks' packed weights, the memory of a batch, and the threads."""

    cdef mf_sac *u
    cdef mf_batch *batches
    cdef int chunk
    cdef long draw

    def __cinit__(self, dict rule, int members, int batch, int chunk, int draws, actor, int actor_kind, critic,
                  int critic_kind, int threads, bint wide, double spin_s):
        """Allocates everything.

        Args:
            rule: the fields of mf_rule.
            chunk: most updates of one call; draws: of standard normal numbers that each takes.
            actor, critic: widths from the input to the output.
            actor_kind, critic_kind: activations (runtime/c/dense_layers.h).
            threads: the caller is one of them. wide: use the widest vectors. spin_s: how long idle threads spin.
        """
        cdef int[MF_MOST_LAYERS + 1] of_actor
        cdef int[MF_MOST_LAYERS + 1] of_critic
        cdef mf_rule given = rule
        for i, size in enumerate(actor):
            of_actor[i] = size
        for i, size in enumerate(critic):
            of_critic[i] = size
        self.chunk, self.draw = chunk, draws * batch * given.width
        self.batches = <mf_batch *>calloc(chunk, sizeof(mf_batch))
        self.u = mf_sac_new(&given, members, batch, of_actor, len(actor) - 1, actor_kind, of_critic, len(critic) - 1,
                            critic_kind, threads, wide, <int64_t>(spin_s * 1e9))
        if self.u == NULL or self.batches == NULL:
            raise MemoryError
        error = mf_team_start(&self.u.team)
        if error:
            raise no_threads(threads - 1, error)

    def __dealloc__(self):
        if self.u != NULL:
            mf_sac_free(self.u)
        free(self.batches)

    @property
    def wide(self):
        """Whether it uses AVX-512 although the module was built without."""
        return bool(self.u.wide)

    cdef point(self, mf_tensor *t, given):
        cdef uintptr_t weight, first, second, target
        weight, first, second, target = given
        t.weight, t.first = <float *>weight, <float *>first
        t.second, t.target = <float *>second, <float *>target

    def tensors(self, actor, critics, log_std, temperature):
        """Sets addresses (weight, first moment, second moment, target or 0) and packs the weights.

        Args:
            actor: of weight and bias of each layer. critics: of the same, for each critic.
            log_std: of it, or None. temperature: (log α, first moment, second moment), or None.
        """
        nets = [actor, *critics]
        if len(critics) != self.u.members:
            raise ValueError(f"{len(critics)} critics, expected {self.u.members}")
        for k, given in enumerate(nets):
            self.layers(&self.u.actor if k == 0 else &self.u.critic[k - 1], given)
        if log_std is not None:
            self.point(&self.u.log_std, log_std)
        if temperature is not None:
            self.u.log_alpha = <float *><uintptr_t>temperature[0]
            self.u.log_alpha_first = <float *><uintptr_t>temperature[1]
            self.u.log_alpha_second = <float *><uintptr_t>temperature[2]
        mf_sac_pack(self.u)

    cdef layers(self, mf_mlp *net, given):
        if len(given) != 2 * net.layers:
            raise ValueError(f"{len(given)} tensors, expected {2 * net.layers}")
        for l in range(net.layers):
            self.point(&net.layer[l].weight, given[2 * l])
            self.point(&net.layer[l].bias, given[2 * l + 1])

    def views(self, actor, critic):
        """Sets what actor and critics read: [(rows, shift, scale, floats in a row), …]; shift, scale 0: as it is."""
        self.view(&self.u.actor_view, actor)
        self.view(&self.u.critic_view, critic)

    cdef view(self, mf_view *of, given):
        cdef uintptr_t rows, shift, scale
        if len(given) > MF_MOST_LEAVES:
            raise ValueError(f"{len(given)} leaves, expected at most {MF_MOST_LEAVES}")
        of.leaves, of.size = len(given), 0
        for i, (rows, shift, scale, size) in enumerate(given):
            of.leaf[i].rows, of.leaf[i].size = <const float *>rows, size
            of.leaf[i].shift, of.leaf[i].scale = <const float *>shift, <const float *>scale
            of.size += size

    def run(self, int count, int64_t first, uintptr_t index, uintptr_t after, uintptr_t action, uintptr_t reward,
            uintptr_t discount, uintptr_t weight, uintptr_t noise, dict rates, double[::1] steps, double[::1] sums):
        """Runs `mf_sac_run`; index, after int64 [count, batch], reward, discount, weight float32 [count, batch], noise
        [count, draws, batch, width], action [rows, width] of the whole replay buffer; rates by the fields' names."""
        cdef mf_rates r = rates
        cdef long at
        cdef int i
        if not 0 <= count <= self.chunk or steps.shape[0] != 3 or sums.shape[0] != MF_SAC_SUMS:
            raise ValueError(f"{count} updates, expected at most {self.chunk}, with 3 steps and {MF_SAC_SUMS} sums")
        for i in range(count):
            at = <long>i * self.u.batch
            self.batches[i].index = <const int64_t *>index + at
            self.batches[i].after = <const int64_t *>after + at
            self.batches[i].action = <const float *>action
            self.batches[i].reward = <const float *>reward + at
            self.batches[i].discount = <const float *>discount + at
            self.batches[i].weight = <const float *>weight + at
            self.batches[i].noise = <const float *>noise + i * self.draw
        with nogil:
            mf_sac_run(self.u, self.batches, count, first, &r, &steps[0], &sums[0])
