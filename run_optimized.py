"""Trains with the fast settings: `metta-fast train`, with hardware=ultra_fast if no profile is given.

python run_optimized.py hardware=ultra_fast env.num_envs=1024 trainer.batch_size=262144
python run_optimized.py --help
"""

import sys

from metta_fast.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]], default_hardware="ultra_fast"))
