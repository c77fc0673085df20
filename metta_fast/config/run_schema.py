"""The keys of a run's output: its folder, checkpoints, evaluations, logs. Part of the schema (schema.py)."""

from __future__ import annotations

from dataclasses import dataclass

from metta_fast.config.key import key


@dataclass
class RunConfig:
    dir: str = key("runs", "folder of all runs")
    remote: str | None = key(
        None,
        "where states, metrics and files are uploaded while training, and fetched to continue on another machine: "
        "s3://bucket/prefix, gs://…, az://…, abfs://… or a folder; the run is kept in <run.remote>/<run.name>",
        kind="str",
        null=True,
    )
    name: str | None = key(None, "name of the run's folder; null: <env>-<date>-<time>", kind="str", null=True)
    checkpoint_interval: int = key(100, "epochs between checkpoints; 0: only one at the end", low=0)
    checkpoint_max_s: float = key(300.0, "most seconds between two checkpoints", low=0)
    keep_checkpoints: int = key(3, "number of newest checkpoints that are kept, besides the best one", low=1)
    evaluate_interval: int = key(
        0, "epochs between evaluations on unseen seeds; 0: never (`metta-fast eval` evaluates a run)", low=0
    )
    evaluate_episodes: int = key(64, "environments of an evaluation, which play one episode each", low=1)
    evaluate_deterministic: bool | None = key(
        None,
        "evaluations take the most likely action (true) or a sample (false); null: the most likely of continuous "
        "actions, a sample of discrete ones",
        kind="bool",
        null=True,
    )
    evaluate_seed: int | None = key(
        None,
        "seed of the evaluations' maps and samples, which never occur in training; null: the run's seed",
        kind="int",
        null=True,
        low=0,
        high=(1 << 63) - 1,
    )
    replay_interval: int = key(
        0,
        "epochs between replays (a page in replays/ that shows an episode on an unseen map), and one at the end; "
        "0: never (`metta-fast replay` writes one)",
        low=0,
    )
    keep_replays: int = key(20, "number of newest replays that are kept", low=1)
    monitor_interval: int = key(50, "epochs between readings of CPU, GPU, memory and power; 0: never", low=0)
    gradient_stats_interval: int = key(
        0, "epochs between statistics of gradients and optimizer steps, by layer; 0: never", low=0
    )
    log_interval: int = key(1, "epochs between rows of metrics", low=1)
    min_interval_s: float = key(
        30.0,
        "least seconds between two checkpoints, evaluations, replays, readings of the monitor or gradient statistics; "
        "a shorter run has an evaluation, a replay and a reading at its end, if they are asked for",
        low=0,
    )
    notices: str = key(
        "auto",
        "who announces that this machine will be taken away: auto (found out), none, a cloud whose metadata service is "
        "asked (ec2, gcp, azure), or the scheduler of the job",
        ("auto", "none", "ec2", "gcp", "azure", "skypilot", "sagemaker", "runpod", "slurm", "kubernetes"),
    )
    preempt_exit_code: int | None = key(
        None,
        "exit code after SIGTERM or a notice that the machine ends; null: that of the job's scheduler "
        "(SkyPilot 33, SLURM 85 after SIGUSR1), 143 elsewhere",
        kind="int",
        null=True,
        low=0,
        high=255,
    )
    dashboard: str = key(
        "auto",
        "rich (a terminal dashboard), plain (lines), none, or auto (rich in a terminal, else plain)",
        ("auto", "rich", "plain", "none"),
    )
    tensorboard: bool = key(True, "write TensorBoard events, besides metrics.jsonl")


@dataclass
class WandbConfig:
    mode: str = key(
        "disabled",
        "Weights & Biases: disabled, offline (into the run's folder, no account needed) or online",
        ("disabled", "offline", "online"),
    )
    project: str = key("metta_fast", "W&B project")
    entity: str | None = key(None, "W&B user or team; null: the account's default", kind="str", null=True)
    group: str | None = key(
        None, "W&B group, whose runs are shown together; null: none", kind="str", null=True
    )
