"""Policies: from a block's observations to actions and values.

    obs ─► encoder ─► core (none, LSTM) ─► heads: distribution parameters, value
           encoders.py  cores.py           heads.py          all in network.py

    make_policy(config.policy, spec) -> Policy        # make.py: a name → a checked network
    output = policy(obs, state, reset)                # [T, B, …]; PolicyOutput(params, value, state)
    action, logprob = policy.head.sample(output.params, noise)
    policy.head.to_env(action)                        # what the environment gets: within its bounds

To add a policy of your own, subclass `metta_fast.policy.Policy` (base.py documents the interface), give it a
constructor `(config: PolicyConfig, spec: EnvSpec)` and start with `policy=my_package.MyNet`. To add an
encoder or core to ours, write it in encoders.py or cores.py and name it in network.py and in `PolicyConfig`.
"""

from metta_fast.policy.base import Policy, PolicyOutput
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.make import make_policy
from metta_fast.policy.mixed_head import MixedHead

__all__ = ["ActionHead", "BoxHead", "MixedHead", "Policy", "PolicyOutput", "make_policy"]
