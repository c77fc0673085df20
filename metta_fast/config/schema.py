# ruff: noqa: RUF009  (`key` makes a dataclass field)
"""The typed schema of every configuration key: default, help, allowed values (run.* and wandb.* in run_schema.py).

A key enters here together with its effect. Values are composed as defaults < hardware profile < env and policy
recipe < command line (metta_fast/resolve/compose.py), then checked together and resolved
(metta_fast/resolve/resolve.py). A key's type is that of its resolved value: before that, it may also be the word
`auto` where its help says so.

    python run_optimized.py --help      # every key explained
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from metta_fast.config.key import key
from metta_fast.config.run_schema import RunConfig, WandbConfig


@dataclass
class ImageConfig:
    cameras: list[str] = key(
        [],
        "robots: cameras of the model whose pictures are observed, as [wrist] or [wrist, fixed]; []: no pictures",
        kind="names",
    )
    size: int = key(64, "height and width of a picture in pixels", low=8, high=4096)
    kind: str = key(
        "rgb",
        "what a picture has: rgb (3 channels), depth (1: distance along the view, 255 at env.image.far and beyond) or "
        "rgbd (4)",
        ("rgb", "depth", "rgbd"),
    )
    far: float = key(1.0, "metres that 255 of a depth stands for", low=1e-3)
    state: str = key(
        "actor",
        "who reads the task's own observation beside the pictures: actor, or critic (then the actor reads pictures and "
        "the positions of joints alone; needs policy.shared=false)",
        ("actor", "critic"),
    )


@dataclass
class EnvConfig:
    name: str = key("grid", "name of the recipe; the run's name begins with it")
    factory: str = key(
        "grid",
        "what makes the environments: grid, counter, robot, gymnasium, minigrid, atari, pettingzoo, mettagrid, or your "
        "own as package.module:function",
        names_code=True,
    )
    interface: str = key(
        "metta_fast",
        "how env.factory=package.module:function is called: metta_fast (with the configuration), or pufferlib (makes a "
        "PufferEnv, with buf, seed and env.kwargs; env=pufferlib sets it)",
        ("metta_fast", "pufferlib"),
    )
    id: str | None = key(
        None,
        "the environment's id in Gymnasium's registry, for env.factory=gymnasium, minigrid or atari, or in "
        "PettingZoo's (or the module that has it), for pettingzoo; package:id imports the package first",
        kind="str",
        null=True,
        names_code=True,
    )
    recipe: str | None = key(
        None,
        "env=mettagrid: what gives the MettaGridConfig: arena, or a function as package.module:function; env.kwargs "
        "are its arguments",
        kind="str",
        null=True,
        names_code=True,
    )
    kwargs: dict[str, Any] = key(
        {}, "arguments of the constructor of env.id, of a PufferEnv's creator, or of env.recipe"
    )
    wrappers: list[str] = key(
        [],
        "your own wrappers of env.id as [module:Class, …]: each is called with the environment, the innermost first",
        kind="names",
        names_code=True,
    )
    path: str | None = key(
        None,
        "folder of an environment of your own in C, as metta-fast new-env writes it; typed alone it sets env=c",
        kind="str",
        null=True,
        names_code=True,
    )
    drop: list[str] = key(
        [],
        "leaves of a Python environment's Dict observation that are left out, as [mission, a/b]",
        kind="names",
    )
    leaf_kinds: dict[str, Any] = key(
        {},
        "kinds of leaves of a Python environment's observation by name, as env.leaf_kinds.camera=image: image, symbols "
        "or flat (plain numbers); the others' follow from the environment's own word, shape and dtype",
    )
    pad: bool = key(
        False,
        "true: agents of different spaces (PettingZoo) are padded: observations with zeros, and choices that an agent "
        "lacks are masked; false: they are refused",
    )
    num_envs: int = key(64, "number of environments", low=1)
    agents_per_env: int = key(4, "agents in each environment; num_agents = num_envs * agents_per_env", low=1)
    device: str = key(
        "auto",
        "where environments step: cpu, cuda, or auto (the GPU if the environment has a GPU engine and the learner "
        "runs on the GPU)",
        ("auto", "cpu", "cuda"),
    )
    renderer: str = key(
        "auto",
        "what draws env.image.cameras while training: batch (MuJoCo Warp's, all robots at once on the GPU), sequential "
        "(MuJoCo's OpenGL on the CPU's physics), or auto (batch with env.device=cuda, else sequential); evaluation on "
        "the CPU is always drawn by MuJoCo's OpenGL",
        ("auto", "batch", "sequential"),
    )
    observation: str = key(
        "compact",
        "grid: tokens [200, 3], dense [11, 11, 24] or compact [387], all uint8; other environments: default, or the "
        "names that their factory's observations() gives",
    )
    max_steps: int = key(1000, "time limit of an episode in steps", low=1)
    action_repeat: int = key(
        1,
        "how many times the environment repeats each action; rewards are summed, and it counts as one agent step",
        low=1,
    )
    action_mask: str = key(
        "auto",
        "where a Python environment's mask of legal actions is: obs:LEAF, info, method, none (masks are ignored), "
        "absent (a mask in info ends the run with an error), or auto (a leaf action_mask, a method action_masks(), or "
        "info['action_mask'] at the first reset, else absent; taken over at a resume)",
    )
    step_cost: str = key(
        "auto",
        "class of the time of one environment's step: cheap (under 20 µs), medium (under 1 ms), slow, or auto "
        "(measured before the start for an environment that is not ours, and taken over at a resume); values derived "
        "for such an environment depend on it",
        ("auto", "cheap", "medium", "slow"),
    )
    step_waits: str = key(
        "auto",
        "whether a step of a Python environment mostly waits, for a clock, a socket or another process: no, threads "
        "(it does, and steps in several threads of one process overlap), workers (only those in several processes "
        "do), or auto (found with env.step_cost, and taken over at a resume); vector.backend=auto and the automatic "
        "numbers of workers and threads depend on it",
        ("auto", "no", "threads", "workers"),
    )
    limit_is_terminal: bool = key(
        False, "true: reaching the time limit is a terminal (no bootstrap) instead of a truncation"
    )
    show_viewer: bool = key(
        False, "robots: show environment 0 in MuJoCo's viewer during training (needs a display)"
    )
    image: ImageConfig = field(default_factory=ImageConfig)
    params: dict[str, Any] = key({}, "the factory's own keys (grid: map, rooms, objects, rewards, …)")


@dataclass
class VectorConfig:
    backend: str = key(
        "auto",
        "how environments are stepped: serial, threads (native environments, without the GIL), workers (processes), "
        "gpu (needs env.device=cuda), or auto (gpu if env.device=cuda, else threads for native environments and "
        "workers for Python environments)",
        ("auto", "serial", "threads", "workers", "gpu"),
    )
    num_workers: int = key(
        "auto",
        "worker processes of vector.backend=workers: a number, or auto (one for each allowed core)",
        kind="int",
        auto=True,
        low=1,
    )
    num_threads: int = key(
        "auto",
        "stepping threads: in all with vector.backend=threads, in each worker with vector.backend=workers",
        kind="int",
        auto=True,
        low=1,
    )
    async_factor: int = key(
        2, "blocks of environments: while one block steps, the policy acts on another", low=1
    )
    zero_copy: bool = key(
        True, "false: make one more private copy of each observation, like the original setting"
    )
    worker_timeout_s: float = key(
        60.0, "seconds without a reply after which a worker is reported as hung", low=0.1
    )
    restart_workers: int = key(
        0,
        "how many times per session workers that died, hung or raised are restarted and the epoch repeated; "
        "0: the run ends",
        low=0,
    )


@dataclass
class PolicyConfig:
    name: str = key(
        "mlp",
        "mlp (compact, dense and flat observations), tokens (token encoder), or your own as module:Class",
        names_code=True,
    )
    encoder: str | None = key(
        None,
        "your own encoder as module:Class, or token_bag (long lists of tokens); null: by policy.name and the kinds of "
        "the leaves",
        kind="str",
        null=True,
        names_code=True,
    )
    image_encoder: str = key(
        "nature",
        "convolutions over images: nature (three layers) or impala (residual, slower, often better)",
        ("nature", "impala"),
    )
    symbol_encoder: str = key(
        "flat",
        "grids of symbols: embedding (a vocabulary for each channel; derived for an environment that is not ours) or "
        "flat (plain numbers)",
        ("flat", "embedding"),
    )
    hidden_size: int = key(128, "width of the encoder and the core", low=1)
    frame_stack: int = key(
        1,
        "observations that the network sees at once: the present one and those before it, zeros before the episode; a "
        "frame is stored once",
        low=1,
        high=1000,
    )
    core: str = key("none", "recurrent core: none, lstm or mingru", ("none", "lstm", "mingru"))
    activation: str = key("relu", "activation after each layer of the encoder", ("relu", "tanh", "elu"))
    shared: bool = key(True, "actions and value share one encoder and core; false: the value has its own")
    actor_obs: list[str] | None = key(
        None,
        "observation leaves that the actor reads; null: all but those that the environment marks as privileged",
        kind="names",
        null=True,
    )
    critic_obs: list[str] | None = key(
        None,
        "observation leaves that the critic reads, which may differ from the actor's if policy.shared=false; null: all",
        kind="names",
        null=True,
    )
    squash: bool = key(
        False,
        "continuous actions: squash to the bounds with tanh; false: clip the normal distribution's samples",
    )
    state_std: bool = key(
        False,
        "continuous actions: the standard deviation depends on the observation; false: it is a learned parameter",
    )
    initial_log_std: float = key(
        0.0,
        "continuous actions: log of the initial standard deviation, in units of half the action's range",
        low=-10,
        high=2,
    )
    normalize_obs: bool = key(
        False,
        "normalize floating-point observations to mean 0 and standard deviation 1 over all rollouts, clipped at ±10",
    )
    params: dict[str, Any] = key({}, "keys of your own policy or encoder, as policy.params.depth=3")


@dataclass
class TrainerConfig:
    total_timesteps: int = key(50_000_000, "agent steps to train for", low=1, high=10**15)
    stop_at_return: float | str | None = key(
        None,
        "end the run, saved, once the mean return of the last 100 episodes reaches this; solved: the environment's own "
        "reward_threshold (Gymnasium's registry); null: never",
        kind="float",
        null=True,
        words=("solved",),
    )
    batch_size: int = key(
        16384,
        "rows of one rollout: num_agents * horizon; must be whole segments if typed, else it is a ceiling",
        low=1,
    )
    minibatch_size: int = key(
        4096, "rows of one minibatch; must divide the batch if typed, else it is a ceiling", low=1
    )
    bptt_horizon: int = key(32, "rows of one segment: how far gradients flow back in time", low=1)
    update_epochs: int = key(1, "passes over the batch", low=1, high=10_000)
    gradient_accumulation: int = key(
        1, "minibatches whose gradients are summed for one optimizer step", low=1
    )
    normalize_reward: bool = key(
        True,
        "divide rewards by the running standard deviation of the discounted return (env/return shows the original)",
    )
    learning_rate: float = key(2e-3, "learning rate at the start", low=0, high=100)
    lr_scaling: str = key(
        "none",
        "scale the learning rate with minibatch_size / 16384: none, sqrt, linear",
        ("none", "sqrt", "linear"),
    )
    schedule: str = key(
        "linear",
        "schedule of the learning rate: constant, linear or cosine (both fall to 0 over total_timesteps), or adaptive "
        "(changed after each pass over the batch by the KL divergence from the rollout's policy)",
        ("constant", "linear", "cosine", "adaptive"),
    )
    desired_kl: float = key(
        0.01,
        "trainer.schedule=adaptive: the learning rate is divided by 1.5 above twice this KL divergence, and multiplied "
        "by 1.5 below half of it",
        low=1e-8,
    )
    optimizer: str = key(
        "adam",
        "the optimizer: adam, adamw (decoupled weight decay), or muon (orthogonalized steps for weight matrices, AdamW "
        "for all other weights)",
        ("adam", "adamw", "muon"),
    )
    beta1: float = key(0.9, "Adam's decay of the mean of gradients", low=0, high=0.99999)
    beta2: float = key(0.999, "Adam's decay of the mean of squared gradients", low=0, high=0.9999999)
    adam_epsilon: float = key(
        1e-5,
        "added to the root that Adam divides by; with 1e-8, small second moments cause large steps",
        low=1e-15,
        high=1,
    )
    weight_decay: float = key(
        0.01,
        "trainer.optimizer=adamw or muon: a step shrinks weights by learning_rate times this; biases and other weights "
        "of one dimension stay",
        low=0,
        high=1000,
    )
    momentum: float = key(
        0.95, "trainer.optimizer=muon: decay of the mean of a matrix's gradients", low=0, high=0.9999
    )
    gamma: float = key(0.99, "discount factor", low=0, high=1)
    gae_lambda: float = key(0.95, "lambda of generalized advantage estimation", low=0, high=1)
    advantage: str = key(
        "gae",
        "advantage estimator: gae or vtrace (needs recompute=pass or minibatch, usually update_epochs of 2 or more)",
        ("gae", "vtrace"),
    )
    vtrace_rho_clip: float = key(1.0, "trainer.advantage=vtrace: upper bound of the ratio rho", low=0)
    vtrace_c_clip: float = key(1.0, "trainer.advantage=vtrace: upper bound of the ratio c", low=0)
    recompute: str = key(
        "epoch",
        "when advantages are computed: epoch (once), pass (again before each pass over the batch, with new values) "
        "or minibatch (again before each minibatch, with the values of the minibatches before it)",
        ("epoch", "pass", "minibatch"),
    )
    normalize_advantage: bool = key(
        True, "normalize each minibatch's advantages to mean 0 and standard deviation 1"
    )
    clip_coef: float = key(0.2, "clipping range of the policy's probability ratio at the start", low=0)
    clip_schedule: str = key(
        "constant",
        "schedule of clip_coef: constant, linear or cosine (both fall to 0 over total_timesteps); vf_clip_coef stays",
        ("constant", "linear", "cosine"),
    )
    vf_coef: float = key(0.5, "weight of the value loss", low=0, high=1e6)
    vf_clip_coef: float | None = key(
        None, "clipping range of the value's change; null: no clipping", kind="float", null=True, low=0
    )
    noise_color: float = key(
        0.0,
        "continuous actions: how exploration noise is correlated in time: 0 white (not at all), 1 pink, 2 red; 0.5 to "
        "1 finds rewards that need many similar actions in a row",
        low=0,
        high=3,
    )
    random_shift: int = key(
        0,
        "random-shift augmentation: in the update the images are shown a second time, moved by up to this many pixels, "
        "and actions and values are to stay the same; 0: off",
        low=0,
    )
    random_shift_coef: float = key(
        0.1, "trainer.random_shift: weight of the loss of the moved images", low=0, high=1e6
    )
    entropy_coef: float = key(0.003, "weight of the entropy bonus", low=0, high=1e6)
    max_grad_norm: float = key(0.5, "gradients are scaled down to at most this norm; 0: never", low=0)
    target_kl: float | None = key(
        None,
        "stop the update when the KL divergence from the rollout's policy exceeds this; null: never",
        kind="float",
        null=True,
        low=0,
    )
    device: str = key(
        "auto",
        "where the policy runs and learns: cpu, cuda, or auto (cuda if there is a GPU)",
        ("auto", "cpu", "cuda"),
    )
    precision: str = key(
        "auto",
        "arithmetic of the network: fp32, bf16, fp16 (GPU only), or auto (bf16 on a GPU that supports it, else fp32)",
        ("auto", "bf16", "fp16", "fp32"),
    )
    tf32: bool = key(True, "CUDA: compute fp32 matrix products in TF32")
    cudnn_benchmark: bool = key(
        True, "CUDA: let cuDNN measure which algorithm is fastest (off if deterministic)"
    )
    compile: bool = key(
        "auto",
        "compile the policy and the loss with torch.compile: true, false, or auto (on a GPU only)",
        kind="bool",
        auto=True,
    )
    compile_mode: str = key(
        "auto",
        "mode of torch.compile: default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs, or auto (default "
        "on the CPU and with trainer.cuda_graphs=true, else reduce-overhead)",
        ("auto", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    )
    cuda_graphs: bool = key(
        "auto",
        "capture rollout and update as CUDA graphs: true, false, or auto (on an NVIDIA GPU unless "
        "trainer.cpu_offload=true)",
        kind="bool",
        auto=True,
    )
    cpu_offload: bool = key(
        False, "CUDA: keep the rollout's buffers in host memory and copy each minibatch to the GPU"
    )
    torch_threads: int = key(
        "auto", "torch's own threads on the CPU", kind="int", auto=True, low=1, high=4096
    )
    deterministic: bool = key(
        False,
        "bit-identical repeats and resumes: deterministic kernels, and the environments' state in checkpoints",
    )
    debug: bool = key(
        False, "fill the buffers with a marker before each rollout and check that every row was written"
    )


@dataclass
class DistributedConfig:
    processes: int = key(
        1,
        "processes that train the run together on this machine, or auto (one for each GPU, 1 without); under torchrun "
        "it is what torchrun started. env.num_envs, trainer.batch_size and trainer.minibatch_size are those of all "
        "processes together, vector.* are each one's own",
        kind="int",
        auto=True,
        low=1,
        high=4096,
    )
    backend: str = key(
        "auto",
        "what exchanges tensors on GPUs: nccl, gloo (slower; processes can share a GPU), or auto (nccl); those on the "
        "CPU are exchanged by gloo",
        ("auto", "nccl", "gloo"),
    )
    timeout_s: float = key(
        600.0, "seconds after which an exchange between processes that does not end fails", low=1, high=86400
    )


@dataclass
class Config:
    """The whole configuration of a run."""

    env: EnvConfig = field(default_factory=EnvConfig)
    vector: VectorConfig = field(default_factory=VectorConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    algorithm: dict[str, Any] = key(
        {"name": "ppo"},
        "the learning algorithm, or your own as package.module:Kind; its own keys are algorithm.<key>",
        kind="named",
        names_code=True,
    )
    run: RunConfig = field(default_factory=RunConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
    features: dict[str, Any] = key(
        {}, "plug-ins of the learner by name, each with its own keys (configs/features)", names_code=True
    )
    seed: int = key(0, "seed of environments, policy and sampling", low=0, high=(1 << 63) - 1)
    resume: str | None = key(
        None,
        "continue a run: the path of a run or checkpoint, or auto (the run called run.name, else the newest run)",
        kind="str",
        null=True,
    )
    init_from: str | None = key(
        None,
        "fine-tune: start a new run with the policy and normalizers of a run or checkpoint (a path)",
        kind="str",
        null=True,
    )
