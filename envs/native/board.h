/* board.h: shared memory through which the parent and its worker processes communicate.

     parent                               worker w
     mf_board_post(block, op)  ─mail─►    mf_board_next(w)  the oldest unfinished mail
                                          … resets or steps its slice of the block …
     mf_ready_wait(ready)      ◄─ready──  mf_board_finish(w, box): the last slice of a block makes it ready

   Blocks and workers are both contiguous ranges of environments, so the workers of a block are a range too.
   A worker has one mail box for each block, and a last one for messages that arrive through its socket. */
#ifndef MF_BOARD_H
#define MF_BOARD_H

#include "sync.h"

enum { MF_OP_STEP = 0, MF_OP_RESET = 1, MF_OP_MESSAGE = 2 };

typedef struct {
    _Atomic uint64_t request, done; /* tickets; equal: no mail */
    int32_t op;
    int32_t pad[3];
} mf_mail;

typedef struct {
    mf_bell bell;
    _Alignas(MF_LINE) _Atomic uint64_t progress; /* mails finished so far */
    _Atomic int32_t fault_env;                   /* environment that raised; -1: unknown */
    _Atomic int32_t raised;                      /* 1: its traceback is in the worker's pipe */
} mf_worker;

typedef struct {
    _Alignas(MF_LINE) _Atomic int32_t remaining; /* unfinished slices of the block */
    int32_t first, last;                         /* its workers: first … last-1 */
} mf_block;

typedef struct {
    int32_t num_workers, num_blocks;
    uint64_t seed; /* of the reset in progress */
    int32_t stagger;
    uint64_t ticket; /* used by the parent only */
    int64_t blocks, workers, mails, ready, size; /* offsets in bytes from here */
} mf_board;

MF_SYNC mf_block *mf_board_block(mf_board *b, int32_t i) { return (mf_block *)((char *)b + b->blocks) + i; }
MF_SYNC mf_worker *mf_board_worker(mf_board *b, int32_t w) { return (mf_worker *)((char *)b + b->workers) + w; }
MF_SYNC mf_ready *mf_board_ready(mf_board *b) { return (mf_ready *)((char *)b + b->ready); }
MF_SYNC mf_mail *mf_board_mail(mf_board *b, int32_t w, int32_t box) {
    return (mf_mail *)((char *)b + b->mails) + (int64_t)w * (b->num_blocks + 1) + box;
}

MF_SYNC void mf_board_layout(mf_board *b, int32_t num_workers, int32_t num_blocks) {
    const int64_t boxes = (int64_t)num_workers * (num_blocks + 1) * (int64_t)sizeof(mf_mail);
    b->num_workers = num_workers;
    b->num_blocks = num_blocks;
    b->blocks = ((int64_t)sizeof(mf_board) + MF_LINE - 1) / MF_LINE * MF_LINE;
    b->workers = b->blocks + num_blocks * (int64_t)sizeof(mf_block);
    b->mails = b->workers + num_workers * (int64_t)sizeof(mf_worker);
    b->ready = b->mails + (boxes + MF_LINE - 1) / MF_LINE * MF_LINE;
    b->size = b->ready + mf_ready_size(num_blocks);
}

/* Initialises `b`: zeroed memory aligned to a cache line, of the size that mf_board_layout computes. */
MF_SYNC void mf_board_init(mf_board *b, int32_t num_workers, int32_t num_blocks) {
    mf_board_layout(b, num_workers, num_blocks);
    for (int32_t w = 0; w < num_workers; w++) {
        mf_bell_init(&mf_board_worker(b, w)->bell);
        atomic_init(&mf_board_worker(b, w)->fault_env, -1);
    }
    mf_ready_init(mf_board_ready(b), num_blocks);
}

MF_SYNC void mf_board_mail_to(mf_board *b, int32_t w, int32_t box, int32_t op) {
    mf_mail *mail = mf_board_mail(b, w, box);
    mail->op = op;
    atomic_store_explicit(&mail->request, b->ticket, memory_order_release);
    mf_bell_ring(&mf_board_worker(b, w)->bell, 1);
}

/* Parent: has a block, which must not be in flight, stepped or reset. */
MF_SYNC void mf_board_post(mf_board *b, int32_t block, int32_t op) {
    mf_block *k = mf_board_block(b, block);
    atomic_store(&k->remaining, k->last - k->first);
    b->ticket++;
    for (int32_t w = k->first; w < k->last; w++)
        mf_board_mail_to(b, w, block, op);
}

/* Parent: tells a worker to read its socket. */
MF_SYNC void mf_board_message(mf_board *b, int32_t w) {
    b->ticket++;
    mf_board_mail_to(b, w, b->num_blocks, MF_OP_MESSAGE);
}

/* Returns the box of the worker's oldest unfinished mail, or -1. */
MF_SYNC int32_t mf_board_look(mf_board *b, int32_t w) {
    int32_t oldest = -1;
    uint64_t ticket = UINT64_MAX;
    for (int32_t box = 0; box <= b->num_blocks; box++) {
        mf_mail *mail = mf_board_mail(b, w, box);
        const uint64_t request = atomic_load_explicit(&mail->request, memory_order_acquire);
        if (request != atomic_load_explicit(&mail->done, memory_order_relaxed) && request < ticket) {
            oldest = box;
            ticket = request;
        }
    }
    return oldest;
}

/* Worker: waits for mail; returns its box, or -1 after a signal, the timeout, or spuriously. */
MF_SYNC int32_t mf_board_next(mf_board *b, int32_t w, int64_t spin_ns, int64_t timeout_ns) {
    mf_bell *bell = &mf_board_worker(b, w)->bell;
    int32_t box = mf_board_look(b, w);
    if (box < 0 && spin_ns > 0) {
        const int64_t end = mf_now_ns() + spin_ns;
        const uint32_t before = mf_bell_seen(bell);
        while (mf_bell_seen(bell) == before && mf_now_ns() < end)
            for (int i = 0; i < 8; i++)
                mf_pause();
    }
    if (box >= 0)
        return box;
    const uint32_t seen = mf_bell_seen(bell);
    box = mf_board_look(b, w);
    if (box < 0)
        mf_bell_wait(bell, seen, timeout_ns);
    return box;
}

/* Worker: marks the mail in `box` as finished. */
MF_SYNC void mf_board_finish(mf_board *b, int32_t w, int32_t box) {
    mf_mail *mail = mf_board_mail(b, w, box);
    atomic_store_explicit(&mail->done, atomic_load_explicit(&mail->request, memory_order_relaxed),
                          memory_order_release);
    if (box == b->num_blocks)
        return;
    atomic_fetch_add_explicit(&mf_board_worker(b, w)->progress, 1, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&mf_board_block(b, box)->remaining, 1, memory_order_acq_rel) == 1)
        mf_ready_push(mf_board_ready(b), box);
}

#endif
