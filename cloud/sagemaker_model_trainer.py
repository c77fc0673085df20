"""Starts a training job on SageMaker's spot machines by ModelTrainer, with this checkout in one of AWS's images.

    pip install 'sagemaker>=3,<4'
    python cloud/sagemaker_model_trainer.py --name job --image IMAGE --role ARN --bucket my-bucket -- seed=3

Set-up makes a virtual environment in the job, since the image's PyTorch is older than ours; an image of
cloud/Dockerfile.cuda (cloud/sagemaker_job.py) starts sooner. The rest is as there.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DAY_S = 86400


def settings(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Returns the arguments of ModelTrainer and of the parts that it is given."""
    words = " ".join(map(shlex.quote, ["run.dashboard=plain", *given.words]))
    return {
        "source_code": {
            "source_dir": str(Path(__file__).resolve().parent.parent),
            "command": f"bash cloud/train.sh {words}",
            "ignore_patterns": [".git", ".venv", "build", "runs", "__pycache__"],
        },
        "compute": {
            "instance_type": given.machine,
            "instance_count": 1,
            "volume_size_in_gb": 100,
            "enable_managed_spot_training": True,
        },
        "stopping_condition": {
            "max_runtime_in_seconds": given.days * DAY_S,
            "max_wait_time_in_seconds": 2 * given.days * DAY_S,
        },
        "checkpoint_config": {
            "s3_uri": f"s3://{given.bucket}/runs/{given.name}",
            "local_path": "/opt/ml/checkpoints",
        },
        "trainer": {
            "training_image": given.image,
            "role": given.role,
            "base_job_name": given.name,
            "environment": {
                "RUNS": "/opt/ml/checkpoints",
                "NAME": given.name,
                "ENVIRONMENT": given.environment,
            },
        },
    }


def main(words: Sequence[str] | None = None) -> None:
    """Starts the job and returns at once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--name", required=True, help="the run's name: letters, digits and hyphens")
    parser.add_argument(
        "--image", required=True, help="address of an image with Python 3.11 or newer and a C compiler"
    )
    parser.add_argument("--role", required=True, help="ARN of the role that the job has")
    parser.add_argument("--bucket", required=True, help="where checkpoints go")
    parser.add_argument("--environment", default="grid_rooms", help="as in env=… (default: grid_rooms)")
    parser.add_argument("--machine", default="ml.g5.2xlarge", help="default: ml.g5.2xlarge, one A10G")
    parser.add_argument("--days", type=int, default=1, help="longest time of training (default: 1)")
    parser.add_argument("words", nargs="*", help="keys of the training, after --")
    made = settings(parser.parse_args(words))
    from sagemaker.train import ModelTrainer
    from sagemaker.train.configs import CheckpointConfig, Compute, SourceCode, StoppingCondition

    ModelTrainer(
        source_code=SourceCode(**made["source_code"]),
        compute=Compute(**made["compute"]),
        stopping_condition=StoppingCondition(**made["stopping_condition"]),
        checkpoint_config=CheckpointConfig(**made["checkpoint_config"]),
        **made["trainer"],
    ).train(wait=False)


if __name__ == "__main__":
    main()
