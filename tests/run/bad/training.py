# ruff: noqa: E501  (tables)
"""Mistakes in the arguments of `train`: names, syntax, values that do not go together, resuming."""

from __future__ import annotations

from collections.abc import Iterator

from tests.run.bad.case import Case
from tests.run.bad.keys import TINY

LONG, LONGER = "n" * 300, "n" * 5000

SYNTAX = (
    "a b", "=", "==", "=3", "~env", "~env.num_envs", "env", "env.num_envs", "env.num_envs=", "seed==3", "seed=1,2",
    "seed=range(1,3)", "seed=choice(1,2)", "seed=interval(0,1)", "seed=${seed}", "seed=${nonesuch}", "seed=${oc.env:NONESUCH_MF}",
    "run.name=${oc.decode:'['}", "seed=[1", "seed={a:", "seed='", 'seed="', "seed=\\", "env@x=grid", "+env=grid",
    "++nonesuch=1", "+nonesuch.x=1", "hydra.run.dir=x", "hydra=x", "env.=3", ".env=3", "env..num_envs=3", "env.num_envs.x=3",
    "env.num-envs=3", "--nonesuch", "-x", "--explian", "--cfg", "--cfg=job", "--config-dir", "--config-dir=",
    "--config-dir=/nonesuch", "--config-dir={run}/config.yaml", "–-help", "trainer=3", "trainer={gamma:2}", "trainer={nonesuch:2}",
    "trainer=null", "env=", "env=''", "policy=''", "hardware=''", "hardware=null", "policy=null", "env=null", "env=[grid]",
    "env=[grid,counter]", "hardware=[cpu]", "env={nonesuch:1}", "policy={name:3}", "env=3", "env=true", "policy=1.5",
    "nonesuch=1", "num_envs=3", "lr=3", "features=nonesuch", "features=[nonesuch]", "features=[profiler,nonesuch]",
    "features={nonesuch:{}}", "features={profiler:3}", "features={profiler:{nonesuch:1}}", "features.profiler=abc",
    "features.profiler.epochs=abc", "features.prioritized_replay.prio_alpha=abc", "features.prioritized_replay.prio_alpha=-1",
    "features.=1", "features..x=1", "features.a:b:c=true", "features={a:b:{}}", "env=é", "env=\udcff", "run.name=\udcff",
    "env=grid/counter", "env=../env/grid", "hardware=../hardware/cpu", "policy=/etc/passwd", "hardware=cpu.yaml",
    f"{LONG}=1", f"{LONGER}=1", f"env={LONG}", f"env={LONGER}", f"policy={LONG}", f"hardware={LONG}", f"hardware={LONGER}",
    f"seed={LONGER}", f"features=[{LONG}]", f"algorithm={LONG}", f"--{LONGER}", f"--config-dir={LONG}", f"--config-dir={LONGER}",
    "seed=" + "[" * 3000, "seed=" + "9" * 5000, "seed=" + "[" * 300 + "]" * 300, "env.params=" + "{a:" * 300 + "1" + "}" * 300,
)  # fmt: skip

CODE = (
    "env=nonesuch", "env=:", "env=a:", "env=:b", "env=a:b:c", "env=nonesuch:make", "env=os:nonesuch", "env=os:sep",
    "env=json:dumps", "env=os:getcwd", "env=builtins:exit", "env=builtins:int", "env=my.py:make", "env=1a:make",
    "env=a b:make", "env=this_broken:make", "env=this_exits:make", "env=this_syntax:make", "env=this_none:make",
    "env=this_raises:make", "env=this_takes_none:make", "env=this_recursive:make",
    "policy=nonesuch", "policy=nonesuch.Net", "policy=os.getcwd", "policy=os:getcwd", "policy=builtins:int", "policy=torch.nn.Linear",
    "policy=this_exits:Net", "policy=this_broken.Net", "policy.encoder=nonesuch", "policy.encoder=os:getcwd", "policy.encoder=builtins:int",
    "algorithm=nonesuch", "algorithm=os:getcwd", "algorithm=builtins:int", "algorithm=nonesuch:Kind", "algorithm=this_exits:Kind",
    "algorithm={name:nonesuch}", "algorithm.nonesuch=1", "algorithm.name=nonesuch",
    "features=os:getcwd", "features=nonesuch:add", "features=builtins:int", "features=this_exits:add", "features=this_broken:add",
    "env.factory=nonesuch", "env.factory=os:getcwd", "env.params.nonesuch=1", "env.observation=nonesuch",
)  # fmt: skip

IDS = (
    "env=CartPol-v1", "env=CartPole-v99", "env=CartPole", "env=ALE/Nonesuch-v5", "env=nonesuch/CartPole-v1", "env=nonesuch:My-v0",
    "env=json:My-v0", "env=this_exits:My-v0", "env=this_broken:My-v0", "env=gymnasium", f"env={LONG}-v0", f"env={LONGER}-v0",
    "env=CartPole-v1 env.kwargs.nonesuch=3", "env=CartPole-v1 env.kwargs={nonesuch:3}", "env=Ant-v5 env.kwargs.nonesuch=3",
    "env=CartPole-v1 env.kwargs.max_episode_steps=0", "env=CartPole-v1 env.kwargs.max_episode_steps=abc",
    "env=CartPole-v1 env.action_mask=nonesuch", "env=CartPole-v1 env.action_mask=obs:", "env=CartPole-v1 env.action_mask=obs:nonesuch",
    "env=CartPole-v1 env.action_mask=info", "env=CartPole-v1 env.action_mask=method", "env=Pendulum-v1 env.action_mask=info", "env=Pendulum-v1 env.action_mask=method", "env=CartPole-v1 env.action_mask=obs:a/b", "env=this_wrong_mask:make",
    "env.action_mask=info", "env=CartPole-v1 env.wrappers=[nonesuch]", "env=CartPole-v1 env.wrappers=[nonesuch:Wrap]", "env=CartPole-v1 env.wrappers=[os:sep]",
    "env=CartPole-v1 env.wrappers=[os:getcwd]", "env=CartPole-v1 env.wrappers=[builtins:id]", "env=CartPole-v1 env.wrappers=[builtins:type]",
    "env=CartPole-v1 env.wrappers=[builtins:exit]", "env=CartPole-v1 env.wrappers=os:getcwd", "env=CartPole-v1 env.params.nonesuch=3",
    "env=CartPole-v1 env.max_steps=30", "env=CartPole-v1 env.limit_is_terminal=true", "env.id=CartPole-v1", "env.wrappers=[os:getcwd]",
    "env.kwargs.goal=3", "env=gymnasium env.id=3", "env=gymnasium env.id=''", "env=gymnasium env.id=grid", "env=minigrid", "env=atari", "env=atari env.id=ALE/Pong-v5 env.params.stikcy=0", "env=atari env.id=ALE/Pong-v5 env.params.sticky=2",
    "env=atari env.id=ALE/Pong-v5 env.kwargs.frameskip=2", "env=NonesuchNoFrameskip-v4", "env=CartPole-v1 env.drop=[nonesuch]", "env.drop=[nonesuch]",
    "env=CartPole-v1 env.drop=obs", "env=CartPole-v1 env.agents_per_env=2",
    "env=this_puffer_none:make", "env=pufferlib", "env=pufferlib env.factory=nonesuch", "env=pufferlib env.factory=os:sep", "env=pufferlib env.factory=os:getcwd",
    "env=pufferlib env.factory=this_none:make", "env=pufferlib env.factory=this_exits:make", "env=pufferlib env.factory=this_puffer_none:make",
    "env=pufferlib env.factory=this_puffer_gym:make", "env=pufferlib env.factory=this_puffer_missing:make", "env=pufferlib env.factory=this_puffer_wide:make",
    "env=pufferlib env.factory=this_puffer_none:make env.kwargs.nonesuch=3", "env=pufferlib env.factory=tests.envs.puffer_tasks:make env.agents_per_env=3",
    "env=pufferlib env.factory=tests.envs.puffer_tasks:make env.params.nonesuch=3", "env=pufferlib env.factory=tests.envs.puffer_tasks:make trainer.batch_size=64 env.limit_is_terminal=true",
    "env=pufferlib env.factory=tests.envs.puffer_tasks:make env.kwargs.seed=3", "env=pufferlib env.factory=tests.envs.puffer_tasks:make env.drop=[nonesuch]",
    "env=pufferlib env.factory=tests.envs.puffer_tasks:make env.action_mask=method", "env.interface=pufferlib", "env.interface=nonesuch",
    "env=CartPole-v1 env.leaf_kinds.nonesuch=image",
    "env=CartPole-v1 env.leaf_kinds.obs=image", "env=CartPole-v1 env.leaf_kinds.obs=symbols", "env=CartPole-v1 env.leaf_kinds.obs=nonesuch",
    "env=CartPole-v1 env.leaf_kinds.obs=[a]", "env=CartPole-v1 env.leaf_kinds=image", "env=CartPole-v1 env.leaf_kinds={obs:{a:1}}",
    "env=mettagrid env.recipe=arean", "env=mettagrid env.recipe=null", "env=mettagrid env.recipe=os:getcwd", "env=mettagrid env.recipe=''", "env.recipe=arena",
    "env=mettagrid env.recipe=[a]",
    "env=mettagrid env.id=CartPole-v1", "env=mettagrid env.drop=[nonesuch]", "env=mettagrid env.path=.",
    "env=CartPole-v1 trainer.random_shift=4", "env=metta_fast.envs.sanity.catch:make trainer.random_shift=42",
    "env=metta_fast.envs.sanity.catch:make trainer.random_shift=-1", "env=metta_fast.envs.sanity.catch:make trainer.random_shift=0.5",
    "env.leaf_kinds.obs=flat", "env=CartPole-v1 env.leaf_kinds.a/b=flat", "env=CartPole-v1 env.leaf_kinds.a[0=flat", "env=CartPole-v1 env.leaf_kinds.=flat",
)  # fmt: skip
"""Environments of Gymnasium's registry."""

ZOO = (
    "env=pettingzoo", "env=pettingzoo env.id=''", "env=pettingzoo env.id=pettingzoo.butterfly.pistonbal_v6", "env=butterfly/pistonball_v99",
    "env=pettingzoo env.id=nonesuch.game_v0", "env=pettingzoo env.id=os.path", "env=pettingzoo env.id=this_zoo", "env=pettingzoo env.id=CartPole-v1",
    "env=pettingzoo env.id=this_broken", "env=pettingzoo env.id=this_exits", "env=pettingzoo env.id=this_zoo env.kwargs.nonesuch=1",
    "env=pettingzoo env.id=this_zoo env.params.nonesuch=1", "env=pettingzoo env.id=this_zoo env.wrappers=[nonesuch:Wrap]",
    "env=this_zoo:different", "env=this_zoo:nameless", "env=this_zoo:kinds", "env=this_zoo:kinds env.pad=true", "env=this_zoo:parallel_env",
    "env.pad=true", "env=CartPole-v1 env.pad=true", "env=this_zoo:different env.pad=nonesuch",
)  # fmt: skip
"""Several agents: PettingZoo's ids, and environments with its API."""

TOGETHER = (
    "trainer.batch_size=33", "trainer.minibatch_size=5", "trainer.bptt_horizon=7", "trainer.gradient_accumulation=7",
    "vector.async_factor=3", "vector.backend=threads vector.num_threads=9", "vector.backend=workers vector.num_workers=9",
    "vector.backend=gpu", "env.device=cuda", "trainer.device=cuda", "trainer.precision=fp16", "trainer.cpu_offload=true",
    "trainer.cuda_graphs=true", "vector.restart_workers=2", "env.show_viewer=true", "policy.core=gru", "env=grid policy.frame_stack=2", "policy.encoder=tokens",
    "policy.actor_obs=[nonesuch]", "policy.critic_obs=[nonesuch]", "policy.actor_obs=[]", "policy.params.nonesuch=1",
    "env.agents_per_env=100000000", "env.num_envs=100000000", "policy.hidden_size=1e6", "trainer.batch_size=3.2e9",
    "wandb.mode=online", "wandb.mode=offline wandb.project=''", "env.params.goal=abc", "env.params.goal=-1", "env.params.dtype=float9",
    "env.params.dtype=3", "env.params.goal=[1]", "env.params.goal=0", "env.params.goal=1e30", "env.params.goal=1.5",
)  # fmt: skip

IDLE = (
    "policy.squash=true", "policy.state_std=true", "policy.initial_log_std=-1", "trainer.noise_color=1", "vector.num_workers=2",
    "vector.num_threads=2", "vector.worker_timeout_s=5", "env.observation=dense", "env.step_cost=slow", "trainer.vtrace_rho_clip=2",
    "trainer.vtrace_c_clip=2", "trainer.desired_kl=0.1", "trainer.random_shift_coef=2",
    "env=metta_fast.envs.sanity.catch:make trainer.random_shift_coef=0 trainer.random_shift=4", "trainer.compile_mode=max-autotune", "run.evaluate_episodes=8",
    "run.evaluate_deterministic=true", "run.evaluate_seed=8", "run.keep_replays=8", "run.checkpoint_interval=0 run.checkpoint_max_s=8",
    "wandb.project=mine", "wandb.entity=mine", "wandb.group=mine", "vector.restart_workers=1", "trainer.weight_decay=0.1",
    "trainer.optimizer=adamw trainer.momentum=0.9",
)  # fmt: skip
"""Keys without an effect."""

GRID = (
    "map=nonesuch.txt", "map=''", "map=3", "map=[a]", "map={run}", "map=/dev/null", "map={bad}/fifo", "map={bad}/latin.yaml",
    "map={bad}/binary", "map={bad}/wide.txt", f"map={LONG}", f"map={LONGER}", "room_size=3", "room_size=[3]", "room_size=[0,0]",
    "room_size=[1000,1000]", "room_size=[a,b]", "room_size=[-1,5]", "room_size=[1.5,2]", "rooms=[0,0]", "rooms=[99,99]",
    "rooms=abc", "border=-1", "border=abc", "border=1000", "objects=abc", "objects={nonesuch:1}", "objects={wall:-1}",
    "objects={wall:abc}", "objects={wall:100000}", "objects=[wall]", "rewards=abc", "rewards={nonesuch:1}", "rewards={heart:abc}",
    "rewards={heart:nan}", "rewards={heart:inf}", "rewards={heart:1e300}", "nonesuch=1", "num_agents=3", "max_steps=3",
)  # fmt: skip

ROBOT = (
    "randomize.mass=[1.2,0.8]", "randomize.mass=0", "randomize.mass=-1", "randomize.friction=[nan,1]", "randomize.friction=abc",
    "randomize.strength=[1,2,3]", "randomize.latency=[0.5,1]", "randomize.latency=[0,1000]", "randomize.noise=-1", "randomize.noise=inf",
    "randomize.push=[1,2]", "randomize.push_every=3", "randomize.nonesuch=1", "randomize=3", "randomize=[1]", "randomize.mass.x=1",
    "randomize.color=[0,1]", "randomize.color=abc", "randomize.light=[-1,1]", "randomize.camera=-1", "randomize.camera_turn=7",
    "task=nonesuch", "task=3", "task=''", "task=[ant]", "frame_skip=0", "frame_skip=abc", "frame_skip=1000000000", "on_unstable=nonesuch",
    "xml_file=nonesuch.xml", "xml_file={run}", "xml_file={bad}/latin.yaml", "xml_file={bad}/binary", "xml_file=/dev/null",
    "xml_file={bad}/fifo", f"xml_file={LONGER}", "privileged=3", "privileged=[nonesuch]", "nonesuch=1", "xml_file=3", "on_unstable=3",
    "preset=nonesuch", "preset=exact", "preset=3", "njmax=0", "njmax=abc", "nconmax=-1", "nconmax=1e9",
    "njmax=1.5", "njmax=[48]", "nconmax=2097152", "nconmax=nan", "preset=[exact]", "preset=Exact", "preset=''", "njmax=48", "nconmax=16",
)  # fmt: skip

CAMERAS = (
    ("env=lift_cube_wrist env.image.size=0", "from 8 to 4096"), ("env=lift_cube_wrist env.image.size=7", "from 8 to 4096"),
    ("env=lift_cube_wrist env.image.cameras=[wirst]", "did you mean 'wrist'? it has fixed, wrist"),
    ("env=inverted_pendulum env.image.cameras=[track]", "it has none"),
    ("env=lift_cube_wrist env.image.cameras=[wrist,wrist]", "different cameras"),
    ("env=lift_cube_wrist env.image.cameras=wrist", "expected a list of names"),
    ("env=lift_cube_wrist env.image.kind=normals", "rgb, depth, rgbd"), ("env=lift_cube_wrist env.image.far=0", "env.image.far=0"),
    ("env=lift_cube_wrist env.image.state=nobody", "actor, critic"), ("env=lift_cube_wrist policy.shared=true", "policy.shared=false"),
    ("env=lift_cube_wrist env.image.size=12", "reads sides from 18"),
    ("env=lift_cube_wrist env.image.size=4096 env.num_envs=4096 trainer.batch_size=32768", "env.image.size"),
    ("env=lift_cube_wrist env.device=cuda", "env.device"), ("env=lift_cube_wrist vector.backend=gpu", "vector.backend=gpu"),
    ("env=lift_cube env.image.size=84", "has no effect without env.image.cameras"),
    ("env=lift_cube_wrist env.renderer=batch", "env.renderer=batch has no effect with env.device=cpu"),
    ("env=lift_cube_wrist env.renderer=batch env.device=cpu", "leave it out, or give env.device=cuda"),
    ("env=lift_cube_wrist env.renderer=opengl", "auto, batch, sequential"), ("env=lift_cube_wrist env.renderer=", "env.renderer"),
    ("env=lift_cube env.renderer=batch", "env.renderer=batch has no effect without env.image.cameras"),
    ("env=counter env.renderer=sequential", "env.renderer=sequential has no effect without env.image.cameras"),
    ("env=lift_cube_wrist env.renderer=sequential env.device=cuda", "env.device=cuda"),
    ("env=lift_cube_wrist env.backend=genesis", "pip install genesis-world"), ("env=lift_cube_wrist env.backend=isaac", "MuJoCo Warp"),
    ("env.backend=", "leave it out"), ("--config-name nonesuch", "expected multi_env_wrist"), ("--config-name", "expected multi_env_wrist"),
    ("--config-name=", "expected multi_env_wrist"), ("train.num_steps=0", "train.num_steps=0"), ("train.num_steps=-1", "at least 1"),
    ("train.num_steps=abc", "train.num_steps=abc"), (f"train.num_steps={10**30}", "train.num_steps="),
    ("env.use_wrist_cam=maybe", "true or false"), ("num_train_envs=0", "env.num_envs=0"), ("image.size=0", "env.image.size=0"),
    ("image.sze=64", "env.image.size"), ("train.num_steps=8", "trainer.batch_size"),
    ("env=lift_cube env.params.randomize.color=[0,1]", "changes pictures alone, and there are none"),
    ("env=lift_cube_wrist env.params.randomize.colour=[0,1]", "did you mean 'color'"),
    ("env=lift_cube_wrist env.image.kind=depth env.params.randomize.light=[0,1]", "a depth has no colours"),
    ("env=counter env.image.cameras=[wrist]", "has no effect with env.factory=counter"),
    ("env=CartPole-v1 env.image.cameras=[wrist]", "has no effect with env.factory=gymnasium"),
)  # fmt: skip

ROBOTS_ON_GPU = (
    "env=ant env.device=cuda", "env=ant env.device=cuda env.params.preset=nonesuch", "env=ant env.device=cuda env.params.njmax=0",
    "env=humanoid env.device=cuda env.params.privileged=true", "env=ant env.device=gpu", "env=ant env.params.preset=fast env.device=auto",
    "env=hopper vector.backend=gpu", "env=ant env.device=cuda trainer.device=cpu",
)  # fmt: skip
"""On a machine without a GPU."""

RUNS = (
    "resume=nonesuch", "resume=''", "resume=/", "resume=.", "resume=..", "resume={run}/config.yaml", "resume={bad}/empty",
    "resume={bad}/norun", "resume=/dev/null", "resume=/proc/self", f"resume={LONG}", f"resume={LONGER}", "resume=~nobody_mf/x",
    "resume={run}/checkpoints", "resume={run}/checkpoints/step_999999999999", "resume={run} env=grid", "resume={run} trainer.batch_size=64 seed=8",
    "resume={run} policy.hidden_size=9", "resume={run} trainer.batch_size=96", "resume={run} run.name=other",
    "resume={run} init_from={run}", "resume={run} algorithm=nonesuch", "resume={run} trainer.nonesuch=1", "resume={run} env.num_envs=5",
    "resume={run} policy=lstm", "resume={run} env.params.goal=3",
    "init_from=nonesuch", "init_from=''", "init_from={bad}/empty", "init_from={run}/config.yaml", f"init_from={LONG}",
    f"init_from={LONGER}", "init_from={run} policy.hidden_size=9", "init_from={grid}", "init_from={run}/checkpoints",
    "init_from={bad}/norun",
)  # fmt: skip

PLACES = (
    "run.name=a/b", "run.name=''", "run.name=..", "run.name=.", "run.name=-x", "run.name=é", "run.name='a b'", "run.name=a\nb",
    f"run.name={LONG}", f"run.name={LONGER}", "run.dir=''", "run.dir=/dev/null", "run.dir=/dev/null/x", "run.dir=/proc/x",
    "run.dir={run}/config.yaml", "run.dir={run}/config.yaml/x", f"run.dir={LONG}", f"run.dir={LONGER}", "run.dir=/sys/x",
    "run.dir={runs} run.name=good", "resume=auto run.name=a/b", "resume=auto run.dir=/dev/null", "resume=auto run.dir=''",
    f"resume=auto run.name={LONG}", f"resume=auto run.dir={LONGER}", "run.name=x\x1b[31m",
)  # fmt: skip

SHOW = (
    "--explain trainer.gamma=2", "--cfg job trainer.gamma=2", "--cfg all", "--cfg", "--help --nonesuch=", "--help algorithm=nonesuch",
    "--help algorithm=os:getcwd", "--explain env=nonesuch", "--explain resume=nonesuch", "--cfg job init_from=nonesuch",
    "--explain trainer.batch_size=33 env.num_envs=2", "--cfg job hardware=nonesuch", "--explain policy=nonesuch",
    "--explain features=nonesuch", "--explain policy=os:getcwd", "--explain --cfg", "--cfg job --cfg", "--help nonesuch",
    "--explain run.name=a/b", "--explain run.dir=''", "--cfg job wandb.mode=nonesuch",
)  # fmt: skip


TARGET, BANDIT = "env=metta_fast.envs.sanity.target:make", "env=metta_fast.envs.sanity.bandit:make"
OFF_POLICY = (
    (f"algorithm=td3 {BANDIT}", "algorithm=td3"), (f"algorithm=sac {BANDIT} policy.squash=true", "policy.squash"),
    (f"algorithm=sac {BANDIT} trainer.noise_color=1", "trainer.noise_color"), ("algorithm=sac env=grid", "algorithm=sac"),
    ("algorithm=sac env=metta_fast.envs.sanity.parts:make", "algorithm=sac"), (f"algorithm=sac {TARGET} policy=lstm", "policy.core=lstm"),
    (f"algorithm=sac {TARGET} algorithm.replay_size=2e9 trainer.total_timesteps=3e9", "replay buffer"),
    (f"algorithm=sac {TARGET} algorithm.replay_size=0", "algorithm.replay_size"), (f"algorithm=sac {TARGET} algorithm.replay_size=3", "replay_size=3"),
    (f"algorithm=sac {TARGET} algorithm.learning_starts=5000 trainer.total_timesteps=5000", "algorithm.learning_starts=5000"),
    (f"algorithm=sac {TARGET} algorithm.updates_per_step=-1", "algorithm.updates_per_step"), (f"algorithm=sac {TARGET} algorithm.tau=nan", "algorithm.tau"),
    (f"algorithm=sac {TARGET} algorithm.n_step=0", "algorithm.n_step"), (f"algorithm=sac {TARGET} algorithm.critics=0", "algorithm.critics"),
    (f"algorithm=sac {TARGET} algorithm.critic_width=1e6", "memory"), (f"algorithm=sac {TARGET} algorithm.nonesuch=1", "nonesuch"),
    (f"algorithm=sac {TARGET} algorithm.target_noise=1", "target_noise"), (f"algorithm=td3 {TARGET} algorithm.target_entropy=1", "target_entropy"),
    *((f"algorithm=sac {TARGET} trainer.{key}", key.split("=")[0]) for key in (
        "batch_size=64", "bptt_horizon=8", "update_epochs=2", "clip_coef=0.1", "gae_lambda=0.9", "entropy_coef=0.1", "vf_coef=1", "target_kl=1",
        "recompute=pass", "gradient_accumulation=2", "normalize_advantage=false", "cpu_offload=true", "schedule=adaptive", "precision=fp16",
        "random_shift=4", "compile_mode=max-autotune", "optimizer=muon", "optimizer=adamw", "beta1=0.8", "adam_epsilon=1e-8",
    )),
    (f"algorithm=sac {BANDIT} algorithm.critic=quantile", "algorithm.critic=quantile"),
    (f"algorithm=sac {BANDIT} algorithm.batch_norm=true", "algorithm.batch_norm=true"),
    (f"algorithm=sac {TARGET} algorithm.critic=c51", "algorithm.critic"), (f"algorithm=ppo {TARGET} algorithm.critic=quantile", "critic"),
    (f"algorithm=td3 {TARGET} algorithm.critic=quantile algorithm.quantiles=4 algorithm.dropped_quantiles=4", "dropped_quantiles=4"),
    (f"algorithm=sac {TARGET} algorithm.batch_norm=true algorithm.layer_norm=true", "layer_norm"),
    (f"algorithm=sac {TARGET} policy.shared=false", "policy.shared"), (f"algorithm=sac {TARGET} policy.squash=false", "policy.squash"),
    *((f"algorithm=sac {TARGET} features={name}", f"features.{name}") for name in ("contrastive", "reward_centering")),
    (f"algorithm=sac {TARGET} features.kickstart.teachers=nonesuch", "features.kickstart.teachers"),
    (f"algorithm=sac {TARGET} features.prioritized_replay.prio_alpha=0.5", "prioritized_replay"), ("algorithm=sca", "did you mean"),
)  # fmt: skip
"""SAC and TD3: (words, what the message holds)."""


def cases() -> Iterator[Case]:
    """Yields the cases."""
    for text, says_it in OFF_POLICY:
        yield Case(("train", "hardware=cpu", "run.dashboard=none", *text.split()), (says_it,))
    for table in (SYNTAX, CODE, IDS, ZOO, TOGETHER, RUNS, PLACES):
        for text in table:
            words = (text,) if table is SYNTAX or "\n" in text or "a b" in text else tuple(text.split())
            yield Case(
                (*TINY, *words),
                _says(words[-1]),
                lines=9 if words[-1].startswith("init_from") or words[0].startswith("init_from") else 4,
            )
    for text in IDLE:
        key = text.split()[-1].partition("=")[0]
        yield Case((*TINY, *text.split()), (key,))
    for text in GRID:
        recipe = "env=grid_map" if text.startswith("map=") else "env=grid"
        yield Case((*TINY, recipe, "trainer.batch_size=64", f"env.params.{text}"), _says(text))
    for text in ROBOT:
        yield Case((*TINY, "env=ant", f"env.params.{text}"), _says(text))
    for text, says_so in CAMERAS:
        yield Case((*TINY, *text.split()), (says_so,))
    for text in ROBOTS_ON_GPU:
        says = ("env.device", *_says(text.split()[-1])) if "nonesuch" in text or "njmax" in text else ()
        yield Case(
            (*TINY, *text.split()), says[1:] or ("vector.backend" if "backend" in text else "env.device",)
        )
    for text in SHOW:
        helped = text.startswith("--help")
        yield Case(("train", "hardware=cpu", "env=counter", *text.split()), rc=(0, 2) if helped else (2,))
    for text in (*SYNTAX[1:40:3], *CODE[:40:4], *PLACES[:12:3]):
        small = ("env=counter", "trainer.total_timesteps=64", "hardware=cpu")
        yield Case(("run_optimized.py", *small, *([text] if "a b" in text else text.split())))


def _says(word: str) -> tuple[str, ...]:
    """What the message holds: the value as typed, at least its beginning."""
    name, _, value = word.partition("=")
    value = value.strip("'").split("{")[0][:30]
    if word in ("features.a:b:c=true", "features.profiler.epochs=abc", "seed=9") or len(name) > 99:
        return ()
    known = value.isidentifier() or value.replace(".", "").isdigit()
    if (
        not known
        or "nonesuch" in name
        or "num" in name
        or name.lstrip("+") in ("trainer", "lr", "env", "env@x", "env.num_envs.x")
    ):
        return ()
    return (value,)
