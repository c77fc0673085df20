# ruff: noqa: RUF009  (`key` makes a dataclass field)
"""The typed schema of every configuration key: default, help, allowed values.

A key enters here together with the thing that it does: no key without an effect. Values are composed as
defaults < hardware profile < env and policy recipe < command line (metta_fast/resolve/compose.py), checked together
and resolved (metta_fast/resolve/resolve.py). `Any`-typed keys also take the word `auto` or null, as their
help says.

    python run_optimized.py --help      # every key explained
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def key(
    default: Any,
    help: str,
    choices: tuple[Any, ...] | None = None,
    *,
    kind: str | None = None,
    auto: bool = False,
    null: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """A configuration key: default, one-line help, and what is allowed.

    Args:
        choices: the allowed values where they are few.
        kind: "int", "float", "bool", "str", "names" (a list of them) or "dict"; by default the kind of `default`.
        auto, null: the word `auto`, or null, is allowed as well.
        low, high: the least and greatest value, both included.
    """
    metadata = key_metadata(
        default, help=help, choices=choices, kind=kind, auto=auto, null=null, low=low, high=high
    )
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def key_metadata(default: Any, **given: Any) -> dict[str, Any]:
    """Returns the metadata of a field: what `key` was given, the rest as for a key without limits."""
    kind = given.pop("kind", None) or type(default).__name__
    plain = {"help": "", "choices": None, "auto": False, "null": False, "low": None, "high": None}
    return plain | given | {"kind": kind}


@dataclass
class EnvConfig:
    name: str = key("grid", "the recipe's name, used in the run's name")
    factory: str = key(
        "grid", "what makes the environments: grid, counter, robot, or your own as package.module:function"
    )
    num_envs: int = key(64, "number of environments", low=1)
    agents_per_env: int = key(4, "agents of one environment; num_agents = num_envs * agents_per_env", low=1)
    device: str = key(
        "auto",
        "where environments step: auto (the GPU if the environment has a GPU engine and the learner is there "
        "too), cpu, cuda",
        ("auto", "cpu", "cuda"),
    )
    observation: str = key(
        "compact",
        "grid: tokens [200, 3], dense [11, 11, 24] or compact [387], all uint8; other environments: default",
        ("tokens", "dense", "compact", "default"),
    )
    max_steps: int = key(1000, "time limit of an episode, in steps", low=1)
    action_repeat: int = key(
        1,
        "steps of the environment for each action, with rewards added up; together they count as one agent step",
        low=1,
    )
    limit_is_terminal: bool = key(
        False, "true: the time limit counts as a terminal state (no bootstrap) instead of a truncation"
    )
    show_viewer: bool = key(
        False, "robots: show environment 0 in MuJoCo's window during training (needs a display)"
    )
    params: dict[str, Any] = key({}, "the factory's own keys (grid: map, rooms, objects, rewards, …)")


@dataclass
class VectorConfig:
    backend: str = key(
        "auto",
        "serial, threads (native envs without the GIL), workers (processes), gpu (with env.device=cuda); "
        "auto: gpu with env.device=cuda, else threads for native envs, workers for Python envs",
        ("auto", "serial", "threads", "workers", "gpu"),
    )
    num_workers: Any = key(
        "auto",
        "worker processes of the backend workers: auto (the number of allowed cores) or a number",
        kind="int",
        auto=True,
        low=1,
    )
    num_threads: Any = key(
        "auto",
        "threads that step environments (backend threads: in total; workers: in each worker): auto or a number",
        kind="int",
        auto=True,
        low=1,
    )
    async_factor: int = key(2, "number of blocks: while one block steps, the policy works on another", low=1)
    zero_copy: bool = key(
        True, "false: make one more private copy of each observation, as the original setting does"
    )
    worker_timeout_s: float = key(
        60.0, "seconds without a reply after which a worker is reported as hung", low=0.1
    )
    restart_workers: int = key(
        0,
        "how many times per session dead, hung or failed workers are restarted and the epoch is repeated; 0: the "
        "run ends",
        low=0,
    )


@dataclass
class PolicyConfig:
    name: str = key(
        "mlp",
        "mlp (compact, dense and flat observations), tokens (token encoder), or your own as module:Class",
    )
    encoder: str | None = key(
        None,
        "your own encoder as module:Class; null: by policy.name and the kinds of the leaves",
        kind="str",
        null=True,
    )
    hidden_size: int = key(128, "width of the encoder and the core", low=1)
    core: str = key("none", "memory: none, lstm or mingru", ("none", "lstm", "mingru"))
    activation: str = key("relu", "what follows each of the encoder's layers", ("relu", "tanh", "elu"))
    shared: bool = key(True, "one encoder and memory for actions and value; false: the value has its own")
    actor_obs: Any = key(
        None,
        "leaves of the observation that actions are chosen by; null: all but those that the environment tells "
        "are privileged",
        kind="names",
        null=True,
    )
    critic_obs: Any = key(
        None,
        "leaves that the value reads, with policy.shared=false others than the actions; null: all",
        kind="names",
        null=True,
    )
    squash: bool = key(
        False, "continuous actions: kept within the bounds by tanh; false: a normal distribution, clipped"
    )
    state_std: bool = key(
        False,
        "continuous actions: the standard deviation depends on the observation; false: it is learnt as such",
    )
    initial_log_std: float = key(
        0.0,
        "continuous actions: log of the first standard deviation, in units of half the action's range",
        low=-10,
        high=2,
    )
    normalize_obs: bool = key(
        False,
        "shift and scale floating-point observations to mean 0, std 1 over all rollouts so far, clipped at ±10",
    )
    params: dict[str, Any] = key({}, "keys of your own policy or encoder, as policy.params.depth=3")


@dataclass
class TrainerConfig:
    total_timesteps: int = key(50_000_000, "agent steps to train for", low=1)
    batch_size: int = key(
        16384,
        "rows of one rollout: num_agents * horizon; a typed value must divide, one from a profile or recipe is "
        "a ceiling",
        low=1,
    )
    minibatch_size: int = key(
        4096,
        "rows of one optimizer step; a typed value must divide, one from a profile or recipe is a ceiling",
        low=1,
    )
    bptt_horizon: int = key(32, "rows of one segment: how far gradients flow back in time", low=1)
    update_epochs: int = key(1, "passes over the batch", low=1)
    gradient_accumulation: int = key(
        1, "minibatches whose gradients are summed into one optimizer step", low=1
    )
    normalize_reward: bool = key(
        True,
        "divide rewards by the running standard deviation of the discounted return; env/return is unchanged",
    )
    learning_rate: float = key(2e-3, "optimizer step size at the start", low=0)
    lr_scaling: str = key(
        "none",
        "scale learning_rate with minibatch_size / 16384: none, sqrt, linear",
        ("none", "sqrt", "linear"),
    )
    schedule: str = key(
        "linear",
        "course of the learning rate over total_timesteps: constant, linear, cosine (both to 0); adaptive: set "
        "after each pass over the batch by the KL from the rollout's policy",
        ("constant", "linear", "cosine", "adaptive"),
    )
    desired_kl: float = key(
        0.01,
        "schedule=adaptive: learning_rate is divided by 1.5 if the KL is above twice this value, and multiplied by "
        "1.5 if it is below half of it",
        low=1e-8,
    )
    optimizer: str = key("adam", "adam", ("adam",))
    gamma: float = key(0.99, "discount", low=0, high=1)
    gae_lambda: float = key(0.95, "lambda of the advantage estimate", low=0, high=1)
    advantage: str = key("gae", "gae or vtrace", ("gae", "vtrace"))
    vtrace_rho_clip: float = key(1.0, "vtrace: upper clip of rho", low=0)
    vtrace_c_clip: float = key(1.0, "vtrace: upper clip of c", low=0)
    recompute: str = key(
        "epoch",
        "when advantages are computed: epoch (once), pass (again before each pass over the batch, with new values) "
        "or minibatch (again before each minibatch, with the values of the minibatches before it)",
        ("epoch", "pass", "minibatch"),
    )
    normalize_advantage: bool = key(True, "shift and scale each minibatch's advantages to mean 0, std 1")
    clip_coef: float = key(0.2, "clip coefficient of the policy's probability ratio at the start", low=0)
    clip_schedule: str = key(
        "constant",
        "course of clip_coef over total_timesteps: constant, linear, cosine (both to 0); vf_clip_coef is constant",
        ("constant", "linear", "cosine"),
    )
    vf_coef: float = key(0.5, "weight of the value loss", low=0)
    vf_clip_coef: Any = key(
        None, "clip of the value's change; null: unclipped", kind="float", null=True, low=0
    )
    entropy_coef: float = key(0.003, "weight of the entropy bonus", low=0)
    max_grad_norm: float = key(
        0.5, "largest norm of the gradients, which are scaled down to it; 0 = no limit", low=0
    )
    target_kl: Any = key(
        None,
        "stop the update when the KL from the rollout's policy exceeds this value; null: never",
        kind="float",
        null=True,
        low=0,
    )
    device: str = key(
        "auto",
        "where the policy runs and learns: auto (cuda if there is a GPU), cpu, cuda",
        ("auto", "cpu", "cuda"),
    )
    precision: str = key(
        "auto",
        "precision of the policy: auto (bf16 on a GPU that supports it, else fp32), bf16, fp16 (GPU only), fp32",
        ("auto", "bf16", "fp16", "fp32"),
    )
    tf32: bool = key(True, "CUDA: matrix products of fp32 in TF32")
    cudnn_benchmark: bool = key(True, "CUDA: let cuDNN try its algorithms (off when deterministic)")
    compile: Any = key(
        "auto",
        "torch.compile of the policy and the loss: auto (on a GPU only), true, false",
        kind="bool",
        auto=True,
    )
    compile_mode: str = key(
        "auto",
        "torch.compile's mode: auto (default on the CPU and inside trainer.cuda_graphs, else reduce-overhead), "
        "default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs",
        ("auto", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    )
    cuda_graphs: Any = key(
        "auto",
        "capture rollout and update as our own CUDA graphs: auto (on an NVIDIA GPU without trainer.cpu_offload), "
        "true, false",
        kind="bool",
        auto=True,
    )
    cpu_offload: bool = key(
        False, "CUDA: keep the rollout's buffers in host memory and copy minibatches over"
    )
    torch_threads: Any = key(
        "auto", "torch's own threads on the CPU: auto or a number", kind="int", auto=True, low=1
    )
    deterministic: bool = key(
        False, "bit-identical repeats and resumes: deterministic kernels, env state in checkpoints"
    )
    debug: bool = key(False, "fill buffers with a magic value and check that every row was written")


@dataclass
class RunConfig:
    dir: str = key("runs", "folder that holds the runs")
    name: Any = key(None, "the run's folder name; null: <env>-<date>-<time>", kind="str", null=True)
    checkpoint_interval: int = key(100, "epochs between checkpoints; 0 = only the last", low=0)
    checkpoint_max_s: float = key(300.0, "longest time between checkpoints, in seconds", low=0)
    keep_checkpoints: int = key(3, "number of newest checkpoints to keep, besides the best", low=1)
    evaluate_interval: int = key(
        0, "epochs between evaluations on unseen maps; 0 = only on request (metta-fast eval)", low=0
    )
    evaluate_episodes: int = key(64, "environments of an evaluation, one episode each", low=1)
    evaluate_deterministic: bool = key(False, "evaluate with the most likely action instead of a sample")
    evaluate_seed: Any = key(
        None,
        "seed of the evaluations' maps and samples, which training never uses; null: the run's seed",
        kind="int",
        null=True,
        low=0,
        high=(1 << 63) - 1,
    )
    replay_interval: int = key(
        0,
        "epochs between replays, each a page in replays/ with an episode on an unseen map, and one at the end; "
        "0 = only on request (metta-fast replay)",
        low=0,
    )
    keep_replays: int = key(20, "number of newest replays to keep", low=1)
    monitor_interval: int = key(50, "epochs between readings of CPU, GPU, memory and power; 0 = never", low=0)
    gradient_stats_interval: int = key(
        0, "epochs between statistics of gradients and steps, by layer; 0 = never", low=0
    )
    log_interval: int = key(1, "epochs between rows of metrics", low=1)
    min_interval_s: float = key(
        30.0,
        "least time in seconds between two checkpoints, and between two evaluations, replays, monitor readings or "
        "gradient statistics",
        low=0,
    )
    preempt_exit_code: int = key(
        143,
        "exit code after SIGTERM (for example the code that makes a cloud restart the job)",
        low=0,
        high=255,
    )
    dashboard: str = key(
        "auto", "rich (terminal dashboard), plain (lines), none, auto", ("auto", "rich", "plain", "none")
    )
    tensorboard: bool = key(True, "write TensorBoard events beside metrics.jsonl")


@dataclass
class WandbConfig:
    mode: str = key(
        "disabled",
        "Weights & Biases: disabled, offline (into the run's folder, no account needed) or online",
        ("disabled", "offline", "online"),
    )
    project: str = key("metta_fast", "the project there")
    entity: Any = key(None, "the user or team there; null: the account's default", kind="str", null=True)
    group: Any = key(None, "runs of one group are shown together; null: none", kind="str", null=True)


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
    )
    run: RunConfig = field(default_factory=RunConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)
    features: dict[str, Any] = key({}, "gated plug-ins by name, each with its own keys (configs/features)")
    seed: int = key(0, "seed of everything: environments, policy, sampling", low=0, high=(1 << 63) - 1)
    resume: Any = key(
        None,
        "run to continue: auto (the newest run, or the one named run.name), or the path of a run or checkpoint",
        kind="str",
        null=True,
    )
    init_from: Any = key(
        None,
        "fine-tuning: path of a run or checkpoint whose policy and normalisers a new run starts from",
        kind="str",
        null=True,
    )
