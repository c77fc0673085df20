"""Trains with PufferLib 3's PuffeRL on our environments, with our network and sizes, without its prioritisation.

The kernel in its wheel loads only with torch for CUDA, and only with one version. Elsewhere our kernel computes the
same numbers, and a note says so; the rest of its trainer needs no kernel.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from metta_fast.algorithms.ppo.advantage import Inputs
from metta_fast.algorithms.ppo.advantage._kernel import advantage_cpu
from metta_fast.bench.gpu.plain_torch import plain_policy
from metta_fast.bench.training.peer_env import Stepper, Trained
from metta_fast.contracts.env import Array
from metta_fast.envs.puffer.guard import unchanged
from metta_fast.policy import make_policy

with unchanged():
    from pufferlib import pufferl, pytorch

REPLACED = "its advantage kernel does not load with this torch version: ours computes the same instead"


class Blocks:
    """Provides our blocks in PufferLib's interface: no copies, one block steps while the policy works on another."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper
        self.single_observation_space, self.single_action_space = stepper.spaces()
        self.num_agents = stepper.vec.num_agents
        blocks = stepper.vec.blocks
        self.agents_per_batch = blocks[0].size
        self._agents = [np.arange(block.start, block.stop) for block in blocks]

    def async_reset(self, seed: int) -> None:
        self.stepper.start()

    def recv(self) -> tuple[Any, ...]:
        rows = self.stepper.recv()
        agents = self._agents[self.stepper.block.index]
        teacher, infos = None, ()
        obs = rows.obs[self.stepper.leaf]
        return obs, rows.reward, rows.terminal, rows.truncation, teacher, infos, agents, rows.mask

    def send(self, actions: Array) -> None:
        self.stepper.send(actions)

    def close(self) -> None:
        self.stepper.vec.close()


class Network(nn.Module):
    """Provides our network in PufferLib's interface: returns logits, one tensor for each head, and the value.

    Args:
        plain: on a GPU, use torch layers instead of our kernels of the first layer.
        compile_mode: of torch.compile, for rollout and update; None: not compiled. (PufferLib's own setting
            compiles the update's forward pass only.)
    """

    def __init__(self, run: Trained, plain: bool, compile_mode: str | None) -> None:
        super().__init__()
        policy = make_policy(run.config.policy, run.stepper.spec)
        self.policy = plain_policy(policy) if plain else policy
        self.hidden_size = run.config.policy.hidden_size
        self.leaf, self.nvec = run.stepper.leaf, run.stepper.spec.action.nvec
        self.compute = self._compute if compile_mode is None else compiled(self._compute, compile_mode)

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        return self.compute(observations)

    forward_eval = forward

    def _compute(self, observations: Tensor) -> Any:
        n = len(observations)
        reset = torch.zeros(1, n, dtype=torch.bool, device=observations.device)
        start = self.policy.initial_state(n, observations.device)
        out = self.policy({self.leaf: observations[None]}, start, reset)
        logits = out.params[0].split(list(self.nvec), -1)
        return (logits[0] if len(logits) == 1 else logits), out.value[0]


def compiled(function: Any, mode: str) -> Any:
    """Compiles `function` with torch.compile, separately for each shape."""
    return torch.compile(function, mode=mode, dynamic=False)


@torch.no_grad()
def advantage(
    values: Tensor,
    rewards: Tensor,
    terminals: Tensor,
    ratio: Tensor,
    advantages: Tensor,
    gamma: float,
    gae_lambda: float,
    rho_clip: float,
    c_clip: float,
) -> Tensor:
    """Computes PufferLib's advantage with our kernel.

    All arrays are [segments, rows]. Reward and terminal of row t+1 belong to the action of row t; the last row has no
    advantage.
    """
    ended = (terminals[:, 1:] != 0).T.contiguous()
    value, reward, weight = (x.detach().T.contiguous() for x in (values, rewards[:, 1:], ratio[:, :-1]))
    found, returns = torch.zeros_like(reward), torch.empty_like(reward)
    no, yes = torch.zeros_like(ended), torch.ones_like(ended)
    inputs = Inputs(value, reward, ended, no, yes, weight, None, gamma, gae_lambda, rho_clip, c_clip)
    if value.device.type == "cpu":
        advantage_cpu(inputs.with_arrays(lambda array: array.numpy()), found.numpy(), returns.numpy())
    else:
        from metta_fast.algorithms.ppo.advantage.on_gpu import advantage_on_gpu

        advantage_on_gpu(inputs, found, returns)
    advantages[:, :-1] = found.T
    return advantages


class Puffer(Trained):
    """Runs PufferLib's trainer.

    Args:
        blocks: number of blocks of environments; one steps while the policy works on another.
        compile_mode, plain: see Network; its sampling is compiled as well.
    """

    def __init__(
        self,
        overrides: list[str],
        blocks: int = 1,
        compile_mode: str | None = None,
        plain: bool = False,
    ) -> None:
        super().__init__(overrides, blocks)
        trainer, spec = self.config.trainer, self.stepper.spec
        if spec.action.kind == "box":
            raise RuntimeError("continuous actions: its policy would be another network")
        self.replaced = not (pufferl.ADVANTAGE_CUDA if self.device.type == "cuda" else pufferl._C_AVAILABLE)
        if self.replaced:
            pufferl.compute_puff_advantage = advantage
        settings = {
            "env": "ours", "seed": 0, "torch_deterministic": False, "device": self.device.type, "cpu_offload": False,
            "batch_size": trainer.batch_size, "bptt_horizon": trainer.bptt_horizon, "use_rnn": False,
            "minibatch_size": trainer.minibatch_size, "max_minibatch_size": trainer.minibatch_size,
            "update_epochs": trainer.update_epochs, "total_timesteps": trainer.total_timesteps,
            "compile": False, "compile_mode": "", "compile_fullgraph": False,
            "precision": "bfloat16" if trainer.precision == "bf16" else "float32",
            "optimizer": "adam", "learning_rate": trainer.learning_rate, "anneal_lr": False,
            "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8,
            "gamma": trainer.gamma, "gae_lambda": trainer.gae_lambda, "clip_coef": trainer.clip_coef,
            "vf_coef": trainer.vf_coef, "vf_clip_coef": trainer.vf_clip_coef or 1e9, "ent_coef": trainer.entropy_coef,
            "max_grad_norm": trainer.max_grad_norm or 1e9, "vtrace_rho_clip": 1.0, "vtrace_c_clip": 1.0,
            "prio_alpha": 0.0, "prio_beta0": 1.0, "checkpoint_interval": 1 << 40, "data_dir": "",
        }  # fmt: skip
        network = Network(self, plain, compile_mode).to(self.device)
        if compile_mode is not None:
            # Without CUDA graphs: its graph would overwrite the network's output, which is its input.
            pytorch.sample_logits = compiled(pytorch.sample_logits, "default")
        pufferl.PuffeRL.print_dashboard = lambda *_, **__: None
        self.trainer = pufferl.PuffeRL(settings, Blocks(self.stepper), network)
        if (
            trainer.precision != "bf16"
        ):  # it enters its autocast, which changes nothing then, and never leaves it
            self.trainer.amp_context = nullcontext()

    def ready(self) -> dict[str, Any]:
        return {"ready": True, "note": REPLACED if self.replaced else ""}

    def epoch(self) -> None:
        self.trainer.evaluate()
        self.trainer.train()

    def close(self) -> None:
        self.trainer.utilization.stop()  # a thread that would keep the process from ending
        super().close()
