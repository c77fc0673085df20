"""Steps environments that come batched: Gymnasium's VectorEnv, EnvPool, tensors (RSL-RL, Isaac Lab, ManiSkill), JAX.

    env=my:make    def make(config): return gymnasium.make_vec("CartPole-v1", num_envs=config.num_envs)

    interface.py ─► factory.py ─► gym_batch.py    (numpy)  ─► host_vector.py    ─► Buffers
                              └─► torch_source.py (torch)  ─► tensor_vector.py  ─► Buffers
                              └─► in_jax/         (dlpack) ─┘

Each becomes a DeviceVector (metta_fast/contracts/device_vector.py) on the learner's device.
"""
