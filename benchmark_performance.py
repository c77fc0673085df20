#!/usr/bin/env python3
"""Measures speed; without arguments it compares the performance guide's `original` with `ultra_fast`, in turns.

python benchmark_performance.py --help
python benchmark_performance.py --seconds 10 --json figures.json
python benchmark_performance.py --simulator
"""

import sys

from metta_fast.bench.main import main

if __name__ == "__main__":
    sys.exit(main())
