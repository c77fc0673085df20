/* faults.h: what goes wrong inside MuJoCo, on whatever thread, without a word of its own on the screen.

     mf_guard guard;
     mf_guard_enter(&guard);                   MuJoCo's messages of this thread come to the guard
     if (!setjmp(guard.out)) { … mj_step … }   errors jump out here, guard.error says which; else MuJoCo ends the process
     mf_guard_leave(&guard);

   An event is what a run survives: the first of each kind is kept, with its place, until someone tells of it.
   A fault is what a batch does not survive; the first stays. */
#ifndef MF_ROBOT_FAULTS_H
#define MF_ROBOT_FAULTS_H

#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <mujoco/mujoco.h>

#define MF_INLINE static inline __attribute__((unused))

/* A handler for this thread alone, as MuJoCo's own Python bindings use it: exported by the library of the one version
   that we are built for, but in no header. (mju_setLogHandler is for the whole process, which is not ours.) */
mjfLogHandler _mjPRIVATE_setTlsLogHandler(mjfLogHandler handler);

typedef struct mf_guard {
    jmp_buf out;
    mjfLogHandler before;
    struct mf_guard *outer;
    char error[1024];    /* empty: none */
    char warnings[4096]; /* one to a line */
} mf_guard;

static _Thread_local mf_guard *mf_guarded;

static void mf_guard_hear(const mjLogMessage *message) {
    mf_guard *guard = mf_guarded;
    if (message->level == mjLOG_WARNING) {
        const size_t used = strlen(guard->warnings);
        snprintf(guard->warnings + used, sizeof guard->warnings - used, "%s%s", used ? "\n" : "", message->subject);
    } else if (message->level == mjLOG_ERROR) {
        snprintf(guard->error, sizeof guard->error, "%s", message->subject);
        longjmp(guard->out, 1);
    }
}

MF_INLINE void mf_guard_enter(mf_guard *guard) {
    guard->error[0] = guard->warnings[0] = 0;
    guard->outer = mf_guarded;
    mf_guarded = guard;
    guard->before = _mjPRIVATE_setTlsLogHandler(mf_guard_hear);
}

MF_INLINE void mf_guard_leave(mf_guard *guard) {
    _mjPRIVATE_setTlsLogHandler(guard->before);
    mf_guarded = guard->outer;
}

/* Kinds of events: MuJoCo's warnings by their number, then two of our own. */
enum { MF_NOT_FINITE = mjNWARNING, MF_FATAL, MF_NUM_KINDS };
_Static_assert(MF_NUM_KINDS <= 16, "_robot.pyx keeps 16 events");
enum { MF_FREE = 0, MF_WRITING, MF_WRITTEN, MF_TOLD };

typedef struct {
    _Atomic int32_t state; /* MF_FREE … MF_TOLD */
    int32_t kind, env, step;
    mjtSize info;    /* MuJoCo's, of the warning */
    char text[1024]; /* of a fatal error */
} mf_event;

/* Keep it unless one is kept already. Any thread. */
MF_INLINE void mf_event_keep(mf_event *event, int32_t kind, int32_t env, int32_t step, mjtSize info, const char *text) {
    int32_t expected = MF_FREE;
    if (!atomic_compare_exchange_strong(&event->state, &expected, MF_WRITING))
        return;
    event->kind = kind;
    event->env = env;
    event->step = step;
    event->info = info;
    snprintf(event->text, sizeof event->text, "%s", text);
    atomic_store(&event->state, MF_WRITTEN);
}

/* Whether the event was kept. Waits for a thread that is writing it at this moment. */
MF_INLINE int mf_event_kept(mf_event *event) {
    int32_t state = atomic_load(&event->state);
    while (state == MF_WRITING) {
        sched_yield();
        state = atomic_load(&event->state);
    }
    return state >= MF_WRITTEN;
}

/* mj_loadXML. NULL: error says why. `warnings`: what MuJoCo has to say of a model that it can load. */
MF_INLINE mjModel *mf_load_model(const char *path, char error[1024], char warnings[4096]) {
    mf_guard guard;
    mjModel *volatile model = NULL;
    error[0] = 0;
    mf_guard_enter(&guard);
    if (!setjmp(guard.out))
        model = mj_loadXML(path, NULL, error, 1024);
    else
        snprintf(error, 1024, "%s", guard.error);
    mf_guard_leave(&guard);
    snprintf(warnings, 4096, "%s", guard.warnings);
    return model;
}

/* mj_makeData; NULL without memory. */
MF_INLINE mjData *mf_make_data(const mjModel *model) {
    mf_guard guard;
    mjData *volatile data = NULL;
    mf_guard_enter(&guard);
    if (!setjmp(guard.out))
        data = mj_makeData(model);
    mf_guard_leave(&guard);
    return data;
}

#endif
