"""Equal advantages are all 0 once they are normalised."""

import torch

from metta_fast.algorithms.ppo.loss import normalized

torch.set_num_threads(1)
for n in (1, 7, 64, 1000, 4096, 32768):
    for value in (0.0, 0.1, 3.3, 123.456, -77.7, 1e-12, 1e12):
        result = normalized(torch.full((n,), value), torch.ones(n, dtype=torch.bool))
        assert result.abs().max() < 1e-3, (n, value, result.unique().tolist()[:4])
