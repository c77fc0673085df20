/* sync.h: lets threads and processes wait for one another: they spin briefly, then sleep in the kernel.

     mf_bell    a counter of rings; waiters sleep on a futex (not on Linux: they poll)
     mf_ready   a queue of ready blocks in the order they became ready; one receiver, many senders

   Both may be in memory shared by processes. To miss no ring, use them in this order:

     seen = mf_bell_seen(bell);  if (nothing to do) mf_bell_wait(bell, seen, timeout);

   A ring after `seen` was read ends the wait at once. A wait may end without a ring, so check again. */
#ifndef MF_SYNC_H
#define MF_SYNC_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__linux__) && !defined(MF_NO_FUTEX)
#define MF_FUTEX 1
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#define MF_FUTEX 0
#endif

#define MF_LINE 64 /* bytes of a cache line; data written by different sides is on different lines */
#define MF_SYNC static inline __attribute__((unused))

MF_SYNC int64_t mf_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

MF_SYNC void mf_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- bell ---------------------------------------------------------------------------------------------- */

typedef struct {
    _Alignas(MF_LINE) _Atomic uint32_t word; /* counts the rings */
    _Atomic uint32_t sleepers;
} mf_bell;

MF_SYNC void mf_bell_init(mf_bell *bell) {
    atomic_init(&bell->word, 0);
    atomic_init(&bell->sleepers, 0);
}

MF_SYNC uint32_t mf_bell_seen(mf_bell *bell) { return atomic_load(&bell->word); }

/* Counts a ring and wakes up to n sleepers (with a system call only if there are sleepers). */
MF_SYNC void mf_bell_ring(mf_bell *bell, int32_t n) {
    atomic_fetch_add(&bell->word, 1);
    if (atomic_load(&bell->sleepers) == 0)
        return;
#if MF_FUTEX
    syscall(SYS_futex, &bell->word, FUTEX_WAKE, n, NULL, NULL, 0);
#else
    (void)n;
#endif
}

/* Sleeps until a ring after `seen`, a signal, or the timeout (negative: none).
   Without a futex it polls, at times an eighth of the past wait apart, 1 ms at most: a lock in shared memory would be
   held for ever by a process that was killed while it held it. */
MF_SYNC void mf_bell_wait(mf_bell *bell, uint32_t seen, int64_t timeout_ns) {
    atomic_fetch_add(&bell->sleepers, 1);
#if MF_FUTEX
    const struct timespec limit = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    syscall(SYS_futex, &bell->word, FUTEX_WAIT, seen, timeout_ns < 0 ? NULL : &limit, NULL, 0);
#else
    const int64_t start = mf_now_ns();
    int64_t waited = 0;
    while (mf_bell_seen(bell) == seen && (timeout_ns < 0 || waited < timeout_ns)) {
        int64_t nap = waited / 8 < 20000 ? 20000 : waited / 8 > 1000000 ? 1000000 : waited / 8;
        nap = timeout_ns >= 0 && nap > timeout_ns - waited ? timeout_ns - waited : nap;
        const struct timespec t = {0, (long)nap};
        if (nanosleep(&t, NULL))
            break; /* a signal */
        waited = mf_now_ns() - start;
    }
#endif
    atomic_fetch_sub(&bell->sleepers, 1);
}

/* ---- ready blocks -------------------------------------------------------------------------------------- */

typedef struct {
    mf_bell bell;
    _Alignas(MF_LINE) _Atomic uint64_t tail; /* blocks that became ready so far */
    _Atomic uint32_t fault;                  /* set after a failure; the receiver must check for it */
    _Alignas(MF_LINE) uint64_t head;         /* blocks taken; used by the receiver only */
    int64_t capacity;
    _Atomic int32_t ring[]; /* block + 1, or 0. Each block is in the ring at most once, so it never overflows. */
} mf_ready;

MF_SYNC int64_t mf_ready_size(int64_t num_blocks) {
    const int64_t bytes = (int64_t)sizeof(mf_ready) + num_blocks * (int64_t)sizeof(_Atomic int32_t);
    return (bytes + MF_LINE - 1) / MF_LINE * MF_LINE;
}

/* Initialises `ready`, which points to mf_ready_size(num_blocks) bytes aligned to a cache line. */
MF_SYNC void mf_ready_init(mf_ready *ready, int64_t num_blocks) {
    memset(ready, 0, (size_t)mf_ready_size(num_blocks));
    mf_bell_init(&ready->bell);
    ready->capacity = num_blocks;
}

MF_SYNC void mf_ready_push(mf_ready *ready, int32_t block) {
    const uint64_t at = atomic_fetch_add(&ready->tail, 1);
    atomic_store_explicit(&ready->ring[at % (uint64_t)ready->capacity], block + 1, memory_order_release);
    mf_bell_ring(&ready->bell, 1);
}

MF_SYNC void mf_ready_fault(mf_ready *ready) {
    atomic_store(&ready->fault, 1);
    mf_bell_ring(&ready->bell, 1);
}

/* Takes the first ready block; returns -1 if there is none. */
MF_SYNC int32_t mf_ready_pop(mf_ready *ready) {
    _Atomic int32_t *slot = &ready->ring[ready->head % (uint64_t)ready->capacity];
    const int32_t block = atomic_load_explicit(slot, memory_order_acquire) - 1;
    if (block >= 0) {
        atomic_store_explicit(slot, 0, memory_order_relaxed);
        ready->head++;
    }
    return block;
}

/* Waits for the first ready block and takes it. Returns -1 after a fault, a signal or the timeout, or spuriously. */
MF_SYNC int32_t mf_ready_wait(mf_ready *ready, int64_t spin_ns, int64_t timeout_ns) {
    int32_t block = mf_ready_pop(ready);
    if (block < 0 && spin_ns > 0) {
        const int64_t end = mf_now_ns() + spin_ns;
        do {
            for (int i = 0; i < 16 && block < 0; i++) {
                mf_pause();
                block = mf_ready_pop(ready);
            }
        } while (block < 0 && !atomic_load(&ready->fault) && mf_now_ns() < end);
    }
    if (block >= 0)
        return block;
    const uint32_t seen = mf_bell_seen(&ready->bell);
    block = mf_ready_pop(ready);
    if (block >= 0 || atomic_load(&ready->fault))
        return block;
    mf_bell_wait(&ready->bell, seen, timeout_ns);
    return mf_ready_pop(ready);
}

#endif
