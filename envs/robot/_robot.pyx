"""Steps robots: a MuJoCo model, and a batch of environments on it (physics.h).

One file: both classes work on the C structs that are declared first, which take a fifth of it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

import logging

import numpy as np

from metta_fast.contracts.errors import UserError
from metta_fast.contracts.env import EnvError
from metta_fast.envs.native._batch cimport NativeBatch


cdef extern from "physics.h" nogil:
    ctypedef int64_t mjtSize
    ctypedef struct mjOption:
        double timestep
    ctypedef struct mjModel:
        mjOption opt
        mjtSize nq, nv, nu, nbody, nsite, ntendon, nactuator, ncam, njnt, ngeom, nmat, nlight
        const int *geom_matid
        const float *geom_rgba
        const float *mat_rgba
        const float *light_ambient
        const float *light_diffuse
        const float *light_specular
        const double *light_dir
        const double *light_dir0
        const double *cam_pos
        const double *cam_pos0
        const double *cam_poscom0
        const double *cam_quat
        const double *cam_mat0
        const int *body_parentid
        const int *body_jntnum
        const int *body_jntadr
        const double *body_quat
        const int *jnt_type
        const int *jnt_dofadr
        const double *jnt_axis
        const int *actuator_gaintype
        const int *actuator_biastype
        double *actuator_ctrlrange
        const uint8_t *actuator_ctrllimited
        const int32_t *sensor_adr
        const int32_t *jnt_qposadr
    ctypedef struct mjData:
        double *qpos
        double *qvel
    int mjVERSION_HEADER, mjOBJ_BODY, mjOBJ_SITE, mjOBJ_SENSOR, mjOBJ_ACTUATOR, mjSTATE_INTEGRATION
    int mjJNT_FREE, mjJNT_SLIDE, mjJNT_HINGE, mjOBJ_CAMERA
    int mjGAIN_FIXED, mjGAIN_AFFINE, mjGAIN_MUSCLE, mjBIAS_NONE, mjBIAS_AFFINE, mjBIAS_MUSCLE
    int mj_version()
    void mj_deleteModel(mjModel *m)
    void mj_deleteData(mjData *d)
    void mj_resetData(const mjModel *m, mjData *d)
    int mj_name2id(const mjModel *m, int kind, const char *name)
    const char *mj_id2name(const mjModel *m, int kind, int number)
    void mju_rotVecQuat(double *to, const double *vector, const double *quat)
    int mj_stateSize(const mjModel *m, int signature)
    void mj_getState(const mjModel *m, const mjData *d, double *state, int signature)
    void mj_setState(const mjModel *m, mjData *d, const double *state, int signature)
    const char *mju_warningText(int warning, size_t info)

    ctypedef struct mf_event:
        int32_t state, kind, env, step
        mjtSize info
        char text[1024]
    int MF_WRITTEN, MF_TOLD, MF_NUM_KINDS, MF_FATAL, MF_NOT_FINITE
    int mf_event_kept(mf_event *event)
    mjModel *mf_load_model(const char *path, char *error, char *warnings)
    mjData *mf_make_data(const mjModel *model)
    mjModel *mf_own_model(const mjModel *base)
    ctypedef struct mf_random:
        int32_t masses, frictions, strengths
        int32_t latency[2]
    ctypedef struct mf_looks:
        pass
    ctypedef struct mf_physics:
        pass
    ctypedef struct mf_robot:
        double reward
    ctypedef struct mf_task:
        const char *name
        int64_t params_size
        uint32_t source
    const mf_task mf_tasks[]
    int MF_NUM_TASKS
    const mf_task *mf_find_task(const char *name)
    ctypedef struct mf_robots:
        const mjModel *model
        const mf_task *task
        const void *params
        mf_random random
        mf_looks looks
        mjModel **own
        float *late
        mjData **data
        mf_physics *physics
        mf_robot *robots
        double *obs_exact
        double *info
        double *sums
        const int32_t *summed
        const int32_t *stat_of
        mf_event *events
        mf_event *fault
        uint64_t seed
        uint32_t first_env
        int32_t stagger_envs, max_steps, limit_is_terminal, stop_unstable, frame_skip, obs_size, num_info, num_stats
        const float *action
        float *obs
        float *reward
        uint8_t *terminal
        uint8_t *truncation
        uint8_t *mask
        uint8_t *reset
        float *stats
        float *privileged
    int64_t mf_robots_privileged_size(const mjModel *m)
    void mf_robots_view(mf_robots *b, int32_t i, const double *init_qvel)
    int32_t mf_robots_reset_range(void *batch, int32_t lo, int32_t hi) noexcept nogil
    int32_t mf_robots_step_range(void *batch, int32_t lo, int32_t hi) noexcept nogil
    int32_t mf_robots_draw_range(void *batch, int32_t lo, int32_t hi) noexcept nogil
    int32_t mf_robots_restart(void *batch, int32_t i) noexcept nogil

LOG = logging.getLogger("metta_fast.robot")


def versions():
    """(MuJoCo's version at build time, at run time), as 4000000 for 4.0.0."""
    return mjVERSION_HEADER, mj_version()


_told = set()
"""(path, warning) of the models that this process has loaded: each is told once."""


def built_tasks():
    """{name: CRC-32 of its header} of the tasks that were compiled in."""
    cdef int i
    return {mf_tasks[i].name.decode(): mf_tasks[i].source for i in range(MF_NUM_TASKS)}


cdef class RobotModel:
    """A MuJoCo model, read from an MJCF file and not changed afterwards.

    Args:
        quiet: MuJoCo's warnings about the file are not told: it is not the user's.

    Raises:
        UserError: no such file, or MuJoCo cannot make a model of it (its message is given).
    """

    cdef mjModel *model
    cdef readonly str path

    def __cinit__(self, str path, *, bint quiet=False):
        cdef char error[1024]
        cdef char warnings[4096]
        self.path = path
        self.model = mf_load_model(path.encode(), error, warnings)
        if self.model == NULL:
            raise UserError(f"{path}: MuJoCo cannot load this model: {error.decode(errors='replace').strip()}")
        if not quiet:
            for line in warnings.decode(errors="replace").split("\n"):
                if line.strip() and (path, line) not in _told:
                    _told.add((path, line))
                    LOG.warning("warning: %s: %s", path, line.strip())

    def __dealloc__(self):
        if self.model != NULL:
            mj_deleteModel(self.model)

    def number(self, str kind, str name):
        """Returns the number of the body or site of that name, or the place of a sensor's first number in sensordata."""
        cdef int number = mj_name2id(self.model, {"body": mjOBJ_BODY, "site": mjOBJ_SITE, "sensor": mjOBJ_SENSOR}[kind],
                                     name.encode())
        if number < 0:
            raise UserError(f"{self.path}: there is no {kind} {name!r} in this model")
        return self.model.sensor_adr[number] if kind == "sensor" else number

    def body(self, str name):
        """Returns the number of the body of that name."""
        return self.number("body", name)

    @property
    def cameras(self):
        """Names of the model's cameras, without those that have none."""
        cdef int i
        cdef const char *name
        found = []
        for i in range(self.model.ncam):
            name = mj_id2name(self.model, mjOBJ_CAMERA, i)
            if name != NULL and name[0]:
                found.append(name.decode())
        return found

    @property
    def joint_places(self):
        """int32 [n]: where in qpos the positions of hinges and slides are."""
        cdef int i
        return np.array([self.model.jnt_qposadr[i] for i in range(self.model.njnt)
                         if self.model.jnt_type[i] in (mjJNT_SLIDE, mjJNT_HINGE)], np.int32)

    @property
    def sizes(self):
        """{nq, nv, nu, nbody, nsite, ntendon}."""
        return {"nq": self.model.nq, "nv": self.model.nv, "nu": self.model.nu, "nbody": self.model.nbody,
                "nsite": self.model.nsite, "ntendon": self.model.ntendon}

    @property
    def privileged_size(self):
        """Returns the length of the row that only the critic may see (mf_robots_reveal)."""
        return mf_robots_privileged_size(self.model)

    @property
    def timestep(self):
        """Seconds of a physics substep."""
        return self.model.opt.timestep

    @property
    def nq(self):
        return self.model.nq

    @property
    def nv(self):
        return self.model.nv

    @property
    def nu(self):
        return self.model.nu

    @property
    def nbody(self):
        return self.model.nbody

    @property
    def nlight(self):
        return self.model.nlight

    def look(self, str name):
        """Returns an array of the model by which it looks as it does (looks.py), f32 [n]."""
        cdef mjModel *m = self.model
        cdef mjtSize i, size
        cdef const float *single = NULL
        cdef const double *exact = NULL
        if name == "geom_rgba":
            single, size = m.geom_rgba, 4 * m.ngeom
        elif name == "mat_rgba":
            single, size = m.mat_rgba, 4 * m.nmat
        elif name == "light_ambient":
            single, size = m.light_ambient, 3 * m.nlight
        elif name == "light_diffuse":
            single, size = m.light_diffuse, 3 * m.nlight
        elif name == "light_specular":
            single, size = m.light_specular, 3 * m.nlight
        elif name == "light_dir":
            exact, size = m.light_dir, 3 * m.nlight
        elif name == "light_dir0":
            exact, size = m.light_dir0, 3 * m.nlight
        elif name == "cam_pos":
            exact, size = m.cam_pos, 3 * m.ncam
        elif name == "cam_pos0":
            exact, size = m.cam_pos0, 3 * m.ncam
        elif name == "cam_poscom0":
            exact, size = m.cam_poscom0, 3 * m.ncam
        elif name == "cam_quat":
            exact, size = m.cam_quat, 4 * m.ncam
        elif name == "cam_mat0":
            exact, size = m.cam_mat0, 9 * m.ncam
        else:
            raise ValueError(f"{name}: no array of looks.py")
        return np.array([single[i] if single != NULL else <float>exact[i] for i in range(size)], np.float32)

    @property
    def matid(self):
        """i32 [ngeom]: each geom's material; -1: none."""
        cdef int i
        return np.array([self.model.geom_matid[i] for i in range(self.model.ngeom)], np.int32)

    @property
    def look_counts(self):
        """{ngeom, nmat, nlight, ncam}."""
        return {"ngeom": self.model.ngeom, "nmat": self.model.nmat, "nlight": self.model.nlight, "ncam": self.model.ncam}

    def push_axes(self):
        """Returns [(degree of freedom, x, y)]: how a horizontal push changes velocities of the root, the first body on the
        world that has joints; [] if it cannot move horizontally."""
        cdef int body, joint
        cdef double axis[3]
        cdef mjModel *m = self.model
        for body in range(1, m.nbody):
            if m.body_parentid[body] == 0 and m.body_jntnum[body]:
                break
        else:
            return []
        found = []
        for joint in range(m.body_jntadr[body], m.body_jntadr[body] + m.body_jntnum[body]):
            if m.jnt_type[joint] == mjJNT_FREE:
                found += [(m.jnt_dofadr[joint], 1.0, 0.0), (m.jnt_dofadr[joint] + 1, 0.0, 1.0)]
            elif m.jnt_type[joint] == mjJNT_SLIDE:
                mju_rotVecQuat(axis, m.jnt_axis + 3 * joint, m.body_quat + 4 * body)
                if max(abs(axis[0]), abs(axis[1])) > 1e-6:
                    found.append((m.jnt_dofadr[joint], axis[0], axis[1]))
        return found

    def odd_actuator(self):
        """Returns the name of an actuator whose force is not simply proportional to its gain and bias; None: none is so."""
        cdef int i, gain, bias
        for i in range(self.model.nactuator):
            gain, bias = self.model.actuator_gaintype[i], self.model.actuator_biastype[i]
            plain = gain in (mjGAIN_FIXED, mjGAIN_AFFINE) and bias in (mjBIAS_NONE, mjBIAS_AFFINE)
            if not plain and not (gain == mjGAIN_MUSCLE and bias in (mjBIAS_NONE, mjBIAS_MUSCLE)):
                name = mj_id2name(self.model, mjOBJ_ACTUATOR, i)
                return name.decode() if name != NULL and name[0] else f"number {i}"
        return None

    @property
    def ctrlrange(self):
        """f32 [nu, 2]: least and greatest control; infinite where the actuator has no limit."""
        cdef int i
        out = np.empty((self.model.nu, 2), np.float32)
        for i in range(self.model.nu):
            out[i] = ((self.model.actuator_ctrlrange[2 * i], self.model.actuator_ctrlrange[2 * i + 1])
                      if self.model.actuator_ctrllimited[i] else (-np.inf, np.inf))
        return out


cdef class RobotBatch(NativeBatch):
    """Environments first_env … first_env+num_envs-1: `metta_fast.contracts.env.EnvBatch`.

    Args:
        task: name of its header. record: NAME_params, of `Task.record`.
        info: names of the numbers of `Task.info`; those of reward_… are added up over an episode.
        stat_of: index into info of each statistic but the last two, `warnings` and `unstable`.
        stop_unstable: a simulation that becomes unstable is a fault (`raise_fault`), not an episode's end.
        random: `Record` of randomize.py; None: nothing is randomised.
        total_envs: over which the first episodes are staggered (`reset(seed, stagger=True)`).
    """

    cdef mf_robots batch
    cdef RobotModel model
    cdef list held
    cdef int made
    cdef str task
    cdef mf_event fault
    cdef mf_event events[16]
    cdef readonly object robots
    """uint8 [num_envs, bytes of mf_robot]."""
    cdef readonly object obs_exact
    """f64 [num_envs, obs_size]: observations of the last call, before they become float32."""
    cdef readonly object info
    """f64 [num_envs, len(info)] of the last step; 0 after a reset."""
    cdef readonly object sums
    """f64 [num_envs, len(info)]: sums of rewards over the episode, last values of the others."""
    cdef readonly object late
    """float32 [num_envs, greatest latency, nu]: actions that have not taken effect yet; None without latency."""

    def __cinit__(self, RobotModel model, str task, record, *, int64_t first_env, int32_t num_envs,
                  int32_t total_envs, int32_t max_steps, bint limit_is_terminal, int32_t frame_skip,
                  int32_t obs_size, tuple info, tuple stat_of, bint stop_unstable=False, random=None):
        cdef int32_t i
        self.take(first_env, num_envs, total_envs)
        self.context = &self.batch
        self.reset_range, self.step_range = mf_robots_reset_range, mf_robots_step_range
        self.seed, self.stagger_envs = &self.batch.seed, &self.batch.stagger_envs
        self.batch.task = mf_find_task(task.encode())
        if self.batch.task == NULL or self.batch.task.params_size != record.nbytes:
            raise UserError(f"{task}: the options and bodies of its Task are {record.nbytes} bytes, but {task}_params in "
                            f"its header is {self.batch.task.params_size if self.batch.task != NULL else 0}: both list "
                            "the same fields in the same order")
        self.model, self.task = model, task
        params = np.frombuffer(record.tobytes(), np.uint8).copy()
        summed = np.array([name.startswith("reward") for name in info], np.int32)
        chosen = np.array([*stat_of, 0], np.int32)  # never empty: it has an address
        init_qvel = np.zeros(max(model.nv, 1))
        physics = np.zeros((num_envs, sizeof(mf_physics)), np.uint8)
        self.robots = np.zeros((num_envs, sizeof(mf_robot)), np.uint8)
        self.obs_exact = np.zeros((num_envs, obs_size))
        self.info, self.sums = np.zeros((2, num_envs, len(info)))
        self.held = [params, summed, chosen, init_qvel, physics]
        self.batch.model = model.model
        self.batch.params = <const void *>at(params)
        self.batch.summed = <const int32_t *>at(summed)
        self.batch.stat_of = <const int32_t *>at(chosen)
        self.batch.data = <mjData **>calloc(num_envs, sizeof(mjData *))
        if self.batch.data == NULL:
            raise MemoryError(f"no memory for the physics of {num_envs} environments")
        if random is not None:
            self.randomize(random)
        self.batch.physics = <mf_physics *>at(physics)
        self.batch.robots = <mf_robot *>at(self.robots)
        self.batch.obs_exact = <double *>at(self.obs_exact)
        self.batch.info = <double *>at(self.info)
        self.batch.sums = <double *>at(self.sums)
        self.batch.first_env = <uint32_t>first_env
        self.batch.max_steps, self.batch.limit_is_terminal = max_steps, limit_is_terminal
        self.batch.stop_unstable = stop_unstable
        self.batch.events, self.batch.fault = self.events, &self.fault
        self.batch.frame_skip, self.batch.obs_size = frame_skip, obs_size
        self.batch.num_info, self.batch.num_stats = len(info), len(stat_of) + 2
        for i in range(num_envs):
            self.batch.data[i] = mf_make_data(self.of(i))
            if self.batch.data[i] == NULL:
                raise MemoryError(f"no memory for the physics of env {first_env + i}")
            self.made = i + 1
            mf_robots_view(&self.batch, i, <const double *>at(init_qvel))

    def __dealloc__(self):  # C fields only: the garbage collector may have cleared the others
        cdef int i
        for i in range(self.made):
            mj_deleteData(self.batch.data[i])
        free(self.batch.data)
        if self.batch.own != NULL:
            for i in range(self.num_envs):
                free(self.batch.own[i])
            free(self.batch.own)

    cdef int randomize(self, random) except -1:
        """Takes what is randomised; gives each env a model of its own if masses, friction or strength are."""
        cdef int32_t i
        record = np.frombuffer(random, np.uint8)
        if record.nbytes != sizeof(mf_random):
            raise ValueError(f"random is {record.nbytes} bytes, mf_random {sizeof(mf_random)}")
        self.batch.random = (<const mf_random *>at(record))[0]
        if self.batch.random.latency[1]:
            self.late = np.zeros((self.num_envs, self.batch.random.latency[1], self.model.nu), np.float32)
            self.batch.late = <float *>at(self.late)
        if not (self.batch.random.masses or self.batch.random.frictions or self.batch.random.strengths):
            return 0
        self.batch.own = <mjModel **>calloc(self.num_envs, sizeof(mjModel *))
        if self.batch.own == NULL:
            raise MemoryError(f"no memory for the models of {self.num_envs} environments")
        for i in range(self.num_envs):
            self.batch.own[i] = mf_own_model(self.model.model)
            if self.batch.own[i] == NULL:
                raise MemoryError(f"no memory for the model of env {self.batch.first_env + i}")
        return 0

    def show(self, struct, held):
        """Takes where each env's look is to be written (`looks` of looks.py) at an episode's start.

        Args:
            held: what the struct points to, kept as long as this batch.
        """
        record = np.frombuffer(struct, np.uint8)
        if record.nbytes != sizeof(mf_looks):
            raise ValueError(f"looks are {record.nbytes} bytes, mf_looks {sizeof(mf_looks)}")
        self.held.append(held)
        self.batch.looks = (<const mf_looks *>at(record))[0]

    def bind(self, rows):
        """Takes the slab's rows (`metta_fast.contracts.env.Rows`) of this batch's agents; kept until the next bind."""
        sizes = {"obs": (np.float32, self.batch.obs_size), "action": (np.float32, self.model.nu),
                 "stats": (np.float32, self.batch.num_stats)}
        if "privileged" in rows.obs:
            sizes["privileged"] = (np.float32, self.model.privileged_size)
        self.point(rows, self.num_envs, sizes, <void **>&self.batch.action)
        if "privileged" not in rows.obs:
            self.batch.privileged = NULL

    cdef int fail(self) except -1:
        self.raise_fault()
        return 0

    def set_state(self, int32_t env, double[::1] qpos, double[::1] qvel):
        """Begin an episode of env `env` of this batch there, all else at the model's rest; writes its row."""
        cdef int i
        if self.rows is None:
            raise RuntimeError("bind() must come before set_state()")
        if not 0 <= env < self.num_envs or qpos.shape[0] != self.model.nq or qvel.shape[0] != self.model.nv:
            raise ValueError(f"env {env} of {self.num_envs}, {qpos.shape[0]} positions and {qvel.shape[0]} velocities: "
                             f"expected {self.model.nq} and {self.model.nv}")
        if mf_robots_draw_range(&self.batch, env, env + 1):
            self.raise_fault()
        mj_resetData(self.of(env), self.batch.data[env])
        for i in range(qpos.shape[0]):
            self.batch.data[env].qpos[i] = qpos[i]
        for i in range(qvel.shape[0]):
            self.batch.data[env].qvel[i] = qvel[i]
        if mf_robots_restart(&self.batch, env):
            self.raise_fault()
        self.started = True

    # ---- what goes wrong ----

    def raise_fault(self):
        """Raise EnvError if a simulation cannot go on: MuJoCo gave up, or it is unstable and that is to stop the run."""
        cdef int kept
        with nogil:
            kept = mf_event_kept(&self.fault)
        if not kept:
            return
        if self.fault.kind == MF_FATAL:
            text = (f"{self.where(&self.fault)}: MuJoCo cannot go on: {words(self.fault.text)}. "
                    f"This is of the model, {self.model.path}: mend it there")
        else:
            text = (f"{self.unstable(&self.fault)}. It stops here because of env.params.on_unstable=stop; `reset` "
                    f"would end the episode and go on")
        raise EnvError(text, self.batch.first_env + self.fault.env)

    def notes(self):
        """{kind: what happened for the first time since the batch was made}: each is given once; see EnvBatch."""
        cdef int32_t kind
        found = {}
        for kind in range(MF_NUM_KINDS):
            if self.events[kind].state != MF_WRITTEN:
                continue
            self.events[kind].state = MF_TOLD
            if kind in OVERFLOWS:
                found[OVERFLOWS[kind]] = (
                    f"{self.where(&self.events[kind])}: MuJoCo warns: {warning_text(&self.events[kind])}. The simulation "
                    f"goes on, less exact; later ones are counted in env/warnings. This is of the model, {self.model.path}")
            else:
                found["unstable"] = (
                    f"{self.unstable(&self.events[kind])}. The episode ends there; later ones are counted in "
                    f"env/unstable. Where that is often: a smaller timestep in {self.model.path}, weaker or "
                    f"more damped actuators; env.params.on_unstable=stop ends the run instead")
        return found

    cdef str where(self, const mf_event *event):
        return f"environment {self.batch.first_env + event.env} ({self.task}), step {event.step} of its episode"

    cdef str unstable(self, const mf_event *event):
        why = "a number of its observation or reward is not finite" if event.kind == MF_NOT_FINITE \
            else warning_text(event)
        return f"{self.where(event)}: the simulation became unstable ({why})"

    cdef const mjModel *of(self, int32_t env) noexcept:
        return self.model.model if self.batch.own == NULL else self.batch.own[env]

    # ---- states ----

    def get_state(self, int32_t env):
        """(qpos f64 [nq], qvel f64 [nv]) of env `env` of this batch."""
        cdef int i
        if not 0 <= env < self.num_envs:
            raise ValueError(f"env {env} of {self.num_envs}")
        return (np.array([self.batch.data[env].qpos[i] for i in range(self.model.nq)]),
                np.array([self.batch.data[env].qvel[i] for i in range(self.model.nv)]))

    def physics(self, int32_t env):
        """f64 [n]: MuJoCo's integration state of env `env` of this batch, for drawing it (render.py)."""
        cdef double[::1] state
        if not 0 <= env < self.num_envs:
            raise ValueError(f"env {env} of {self.num_envs}")
        out = np.empty(mj_stateSize(self.model.model, mjSTATE_INTEGRATION))
        state = out
        mj_getState(self.model.model, self.batch.data[env], &state[0], mjSTATE_INTEGRATION)
        return out

    def look(self, double[:, ::1] states, float[:, ::1] joints, const int32_t[::1] places):
        """Writes the integration state of every env to `states` [num_envs, n], and its qpos at `places` to `joints`
        [num_envs, len(places)]."""
        cdef int32_t i, k
        cdef int32_t count = <int32_t>places.shape[0]
        if (states.shape[0] != self.num_envs or joints.shape[0] != self.num_envs or joints.shape[1] != count
                or states.shape[1] != mj_stateSize(self.model.model, mjSTATE_INTEGRATION)):
            raise ValueError("look: arrays of another size")
        for k in range(count):
            if not 0 <= places[k] < self.model.nq:
                raise ValueError(f"look: place {places[k]} of {self.model.nq}")
        with nogil:
            for i in range(self.num_envs):
                mj_getState(self.batch.model, self.batch.data[i], &states[i, 0], mjSTATE_INTEGRATION)
                for k in range(count):
                    joints[i, k] = <float>self.batch.data[i].qpos[places[k]]

    def reward_exact(self, int32_t env):
        """Returns the reward of the last step before it became float32."""
        if not 0 <= env < self.num_envs:
            raise ValueError(f"env {env} of {self.num_envs}")
        return self.batch.robots[env].reward

    def state_dict(self):
        """Returns all that is needed to continue bit for bit: {"physics": f64 [num_envs, n], MuJoCo's integration state with
        the solver's warm start; "robots": uint8 [num_envs, bytes]; "sums": f64 [num_envs, info]; "seed": int}, and with
        latency "late": float32 [num_envs, steps, nu]. What is drawn follows from the seed and the episodes."""
        cdef int i
        cdef double[:, ::1] at_env
        physics = np.empty((self.num_envs, mj_stateSize(self.model.model, mjSTATE_INTEGRATION)))
        at_env = physics
        for i in range(self.num_envs):
            mj_getState(self.of(i), self.batch.data[i], &at_env[i, 0], mjSTATE_INTEGRATION)
        late = {} if self.late is None else {"late": self.late.copy()}
        return {"physics": physics, "robots": self.robots.copy(), "sums": self.sums.copy(),
                "seed": int(self.batch.seed), **late}

    def load_state_dict(self, state):
        """Continues from `state_dict()` of the same envs and configuration; the rows are the caller's to restore."""
        cdef int i
        cdef const double[:, ::1] at_env
        physics = np.ascontiguousarray(state["physics"], np.float64)
        shapes = [np.shape(state.get(name)) for name in ("physics", "robots", "sums", "late")]
        expected = [(self.num_envs, mj_stateSize(self.model.model, mjSTATE_INTEGRATION)), self.robots.shape,
                    self.sums.shape, np.shape(self.late)]
        if shapes != expected:
            raise ValueError(f"state is {shapes}, expected {expected}: it was saved with another robot, other options "
                             "or another number of environments")
        at_env = physics
        self.robots[...] = state["robots"]
        self.sums[...] = state["sums"]
        self.batch.seed = state["seed"]
        if self.late is not None:
            self.late[...] = state["late"]
        if mf_robots_draw_range(&self.batch, 0, self.num_envs):
            self.raise_fault()
        for i in range(self.num_envs):
            mj_resetData(self.of(i), self.batch.data[i])
            mj_setState(self.of(i), self.batch.data[i], &at_env[i, 0], mjSTATE_INTEGRATION)
        self.started = True


OVERFLOWS = {0: "inertia", 1: "contacts", 2: "constraints"}
"""MuJoCo's warnings that a simulation survives: mjWARN_INERTIA, mjWARN_CONTACTFULL, mjWARN_CNSTRFULL."""


cdef str warning_text(const mf_event *event):
    return words(mju_warningText(event.kind, <size_t>event.info))


cdef str words(const char *text):
    """On one line, without a last full stop."""
    return " ".join((<bytes>text).decode(errors="replace").split()).rstrip(".")


cdef void *at(array) except *:
    return <void *><uintptr_t>array.ctypes.data
