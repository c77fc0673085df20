"""Starts a training job on SageMaker's spot machines by the plain request, create_training_job.

    pip install boto3
    python cloud/sagemaker_job.py --name job --image ACCOUNT.dkr.ecr.REGION.amazonaws.com/metta_fast:cuda \
        --role arn:aws:iam::ACCOUNT:role/SageMaker --bucket my-bucket -- trainer.total_timesteps=1000000000
    python cloud/sagemaker_job.py … --print       # shows the request, asks nobody

The image is that of cloud/Dockerfile.cuda. SageMaker copies /opt/ml/checkpoints to the bucket and back: a machine that
was taken away is replaced, and the new one continues the run. Another job with the same --name and --bucket does too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

DAY_S = 86400


def request(given: argparse.Namespace, now: float) -> dict[str, Any]:
    """Returns the arguments of create_training_job. now: seconds since 1970, for the job's name."""
    return {
        "TrainingJobName": f"{given.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}",
        "RoleArn": given.role,
        "AlgorithmSpecification": {
            "TrainingImage": given.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/opt/metta_fast/cloud/train.sh"],
            "ContainerArguments": ["run.dashboard=plain", *given.words],
        },
        "Environment": {"RUNS": "/opt/ml/checkpoints", "NAME": given.name, "ENVIRONMENT": given.environment},
        "ResourceConfig": {"InstanceType": given.machine, "InstanceCount": 1, "VolumeSizeInGB": 100},
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {
            "MaxRuntimeInSeconds": given.days * DAY_S,
            "MaxWaitTimeInSeconds": 2 * given.days * DAY_S,
        },
        "CheckpointConfig": {
            "S3Uri": f"s3://{given.bucket}/runs/{given.name}",
            "LocalPath": "/opt/ml/checkpoints",
        },
        "OutputDataConfig": {"S3OutputPath": f"s3://{given.bucket}/output"},
    }


def main(words: Sequence[str] | None = None) -> None:
    """Sends the request, or prints it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--name", required=True, help="the run's name: letters, digits and hyphens")
    parser.add_argument("--image", required=True, help="the image's address in ECR")
    parser.add_argument("--role", required=True, help="ARN of the role that the job has")
    parser.add_argument("--bucket", required=True, help="where checkpoints and output go")
    parser.add_argument("--environment", default="grid_rooms", help="as in env=… (default: grid_rooms)")
    parser.add_argument("--machine", default="ml.g5.2xlarge", help="default: ml.g5.2xlarge, one A10G")
    parser.add_argument("--days", type=int, default=1, help="longest time of training (default: 1)")
    parser.add_argument("--print", action="store_true", help="print the request and stop")
    parser.add_argument("words", nargs="*", help="keys of the training, after --")
    given = parser.parse_args(words)
    made = request(given, time.time())
    if given.print:
        print(json.dumps(made, indent=2))
        return
    import boto3

    boto3.client("sagemaker").create_training_job(**made)
    print(f"started {made['TrainingJobName']}")


if __name__ == "__main__":
    main()
