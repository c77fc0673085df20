"""Tests the resolution of environments on the GPU: auto values, refusals and their messages, memory estimates."""

from __future__ import annotations

import dataclasses

import pytest

from metta_fast.config.keys import put
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.machine.hardware import GIB, Gpu, Machine
from metta_fast.machine.installation import install_extra
from metta_fast.resolve import memory_estimate as memory
from metta_fast.resolve.choose_profile import CARDS
from metta_fast.resolve.compose import COMMAND_LINE, compose
from metta_fast.resolve.explain import explain_text
from metta_fast.resolve.resolve import Resolved, resolve

CARD = Gpu("NVIDIA H100 80GB HBM3", 79 * GIB, (9, 0), free=78 * GIB)
H100 = Machine(16, 64, 128 * GIB, (CARD,), "cuda", driver=(13, 0), nvrtc=13)
BARE = dataclasses.replace(H100, nvrtc=0)
OLD = dataclasses.replace(H100, driver=(12, 4))
AMD = Machine(16, 16, 64 * GIB, (Gpu("AMD Radeon RX 7900 XTX", 24 * GIB, vendor="amd"),), "hip", nvrtc=13)
NO_GPU = Machine(4, 8, 16 * GIB)
STALE = dataclasses.replace(
    NO_GPU, notes=("NVIDIA's driver is for CUDA 12.4, but torch is built for CUDA 13",)
)


def resolved(*words: str, machine: Machine = H100) -> Resolved:
    return resolve(compose(["hardware=auto", *words], machine=machine), machine=machine)


def refusal(*words: str, machine: Machine = H100) -> str:
    with pytest.raises(UserError) as caught:
        resolved(*words, machine=machine)
    assert len(str(caught.value).splitlines()) <= 2
    return str(caught.value)


def test_auto_on_a_card_with_all_that_is_needed() -> None:
    done = resolved()
    config, trainer = done.config, done.config.trainer
    assert (config.env.device, config.vector.backend, config.vector.async_factor) == ("cuda", "gpu", 1)
    assert (trainer.cuda_graphs, trainer.compile, trainer.compile_mode) == (True, True, "default")
    assert config.env.num_envs * config.env.agents_per_env == 8192
    assert (trainer.batch_size, trainer.minibatch_size) == (262144, 32768)
    assert done.origins["env.device"] == "auto: grid has a GPU engine"
    assert len(done.notes) == 1  # the profile that was taken
    assert resolved("env.device=cuda", "vector.backend=gpu").config == config


@pytest.mark.parametrize(("machine", "words", "why", "told"), [
    (NO_GPU, [], "no GPU was found that the installed torch can use", False),
    (STALE, [], "NVIDIA's driver is for CUDA 12.4, but torch is built for CUDA 13", False),
    (AMD, [], "AMD Radeon RX 7900 XTX runs under ROCm, which has no NVRTC", True),
    (BARE, [], "the package cuda-bindings is not installed", True),
    (OLD, [], "NVIDIA's driver is for CUDA 12.4, too old for NVRTC 13", True),
    (H100, ["env=counter"], "counter has no GPU engine", False),
    (H100, ["trainer.device=cpu"], "the policy runs on the CPU", False),
    (H100, ["vector.backend=threads"], "for vector.backend=threads (command line)", True),
    (H100, ["vector.async_factor=4"], "for vector.async_factor=4 (command line)", True),
    (H100, ["trainer.cpu_offload=true"], "for trainer.cpu_offload=true (command line)", True),
    (H100, ["hardware=original"], "for vector.zero_copy=false (hardware/original) and trainer.cpu_offload", True),
])  # fmt: skip
def test_auto_falls_back_to_the_cpu_and_says_why(
    machine: Machine, words: list[str], why: str, told: bool
) -> None:
    done = resolved(*words, machine=machine)
    config = done.config
    assert config.env.device == "cpu"
    assert done.origins["env.device"].startswith(f"auto: {why}")
    assert any(note.startswith("environments step on the CPU") for note in done.notes) == told
    assert config.vector.backend in ("threads", "workers")
    graphs = config.trainer.device == "cuda" and machine is not AMD and not config.trainer.cpu_offload
    assert config.trainer.cuda_graphs == graphs
    if config.trainer.device == "cuda":
        expected = "reduce-overhead" if config.trainer.compile and not graphs else "default"
        assert config.trainer.compile_mode == expected
        if config.vector.backend == "threads":
            assert config.vector.num_threads == 16


@pytest.mark.parametrize(("machine", "words", "why", "cure"), [
    (NO_GPU, [], "no GPU was found", "env.device=cpu or leave it auto"),
    (STALE, [], "torch is built for CUDA 13", "env.device=cpu"),
    (AMD, [], "which has no NVRTC", "environments step on the CPU, policy and learner run on the GPU"),
    (OLD, [], "for CUDA 12.4, too old for NVRTC 13", "install driver 580 or newer, or "),
    (BARE, [], "cuda-bindings is not installed", install_extra("gpu")),
    (H100, ["env=counter"], "counter has no GPU engine", "env.device=cpu"),
    (H100, ["trainer.cpu_offload=true"], "trainer.cpu_offload=true does not work with", "remove one of them"),
    (H100, ["vector.zero_copy=false"], "vector.zero_copy=false does not work with", "remove one of them"),
    (H100, ["vector.backend=workers"], "vector.backend=workers does not work with", "remove one of them"),
    (H100, ["vector.async_factor=2"], "all environments step at once", "remove one of them"),
    (H100, ["trainer.device=cpu"], "but trainer.device=cpu", "remove one of them"),
    (H100, ["trainer.compile_mode=reduce-overhead"], "cannot be captured", "trainer.cuda_graphs=false"),
    (H100, ["trainer.compile_mode=max-autotune"], "cannot be captured", "leave it out"),
])  # fmt: skip
def test_a_typed_cuda_that_cannot_be(machine: Machine, words: list[str], why: str, cure: str) -> None:
    message = refusal("env.device=cuda", *words, machine=machine)
    assert why in message
    assert cure in message


def test_keys_that_need_gpu_environments() -> None:
    assert install_extra("gpu") in refusal("vector.backend=gpu", machine=BARE)
    assert "leave one out" in refusal("vector.backend=gpu", "env.device=cpu")
    assert resolved("trainer.cuda_graphs=false").config.trainer.compile_mode == "reduce-overhead"
    assert resolved("trainer.cuda_graphs=false").config.env.device == "cuda"


def test_graphs_go_with_environments_anywhere() -> None:
    trainer = resolved("env.device=cpu").config.trainer
    assert (trainer.cuda_graphs, trainer.compile_mode) == (True, "default")
    on_cpu = refusal("trainer.cuda_graphs=true", "trainer.device=cpu")
    assert "the policy runs on the CPU (trainer.device=cpu, command line); leave it auto" in on_cpu
    offload = refusal("trainer.cuda_graphs=true", "trainer.cpu_offload=true")
    assert "the rollout is in host memory (trainer.cpu_offload=true, command line)" in offload
    assert "not tested on AMD Radeon" in refusal("trainer.cuda_graphs=true", machine=AMD)
    assert resolved("trainer.cpu_offload=true").config.trainer.compile_mode == "reduce-overhead"


def test_what_a_profile_says_of_cpu_environments_gives_way() -> None:
    done = resolved("hardware=ultra_fast")
    config = done.config
    assert (config.env.device, config.vector.backend, config.vector.async_factor) == ("cuda", "gpu", 1)
    assert (config.env.num_envs, config.trainer.batch_size) == (512, 262144)  # the guide's shape
    assert config.trainer.compile_mode == "default"
    assert any(note.startswith("trainer.compile_mode=default (hardware/ultra_fast: ") for note in done.notes)
    assert done.origins["vector.backend"].endswith("(hardware/ultra_fast)")
    done = resolved("hardware=original", "env.device=cuda")
    assert (done.config.trainer.cpu_offload, done.config.vector.zero_copy) == (False, True)
    assert any(note.startswith("trainer.cpu_offload=false (hardware/original: ") for note in done.notes)


def test_threads_typed_for_environments_on_the_gpu_are_told_to_have_no_effect() -> None:
    notes = resolved("vector.num_threads=8").notes
    assert any(
        note.startswith("vector.num_threads=8 has no effect: it is for environments on the CPU")
        for note in notes
    )


def test_a_run_from_another_machine() -> None:
    """Its deterministic configuration keeps what was found there."""
    composed = compose(["hardware=auto", "env.device=cpu"], machine=H100)
    composed.config = resolved().config
    composed.origins = dict.fromkeys(composed.origins, "run a")
    with pytest.raises(UserError, match=r"trainer\.device=cuda: no GPU was found"):
        resolve(composed, machine=NO_GPU)
    put(composed.config, "env.device", "cpu")
    put(composed.config, "trainer.device", "cpu")
    composed.origins["env.device"] = composed.origins["trainer.device"] = COMMAND_LINE
    done = resolve(composed, machine=NO_GPU)
    assert (done.config.vector.backend, done.config.trainer.cuda_graphs) == ("threads", False)


def parts(*words: str, machine: Machine = H100) -> dict[str, int]:
    return {part.name: part.bytes for part in resolved(*words, machine=machine).memory}


def test_the_rollout_is_what_the_buffers_hold() -> None:
    import torch

    from metta_fast.buffers.rollout import Buffers

    cases = (
        ("policy.core=none", (0, 0)),
        ("policy.core=lstm", (2, 128)),
        ("policy.core=mingru", (1, 128)),
        ("policy.core=lstm policy.shared=false", (4, 128)),
        ("policy.core=none policy.shared=false", (0, 0)),
    )
    for policy, state in cases:
        words = ("env.num_envs=64", "trainer.batch_size=16384", *policy.split())
        config = resolved(*words).config
        made = Buffers.allocate(
            make_factory(config.env).spec,
            num_agents=64 * config.env.agents_per_env,
            horizon=64,
            bptt_horizon=32,
            state_shape=state,
            device=torch.device("cpu"),
        )
        arrays = [*made.obs.values(), *(x for x in vars(made).values() if isinstance(x, torch.Tensor))]
        noise = 16384 * 2 * 4
        assert parts(*words)["rollout"] == sum(x.numel() * x.element_size() for x in arrays) + noise


def test_the_estimate_grows_with_what_takes_memory() -> None:
    usual = parts()
    assert usual.keys() == {
        "rollout",
        "environments",
        "activations",
        "pools of CUDA graphs",
        "weights",
        "CUDA",
        "program",
    }
    assert sum(usual.values()) < 4 * GIB
    assert parts("policy.core=lstm")["activations"] > 1.5 * usual["activations"]
    apart = parts("policy.shared=false")
    assert 1.9 * usual["weights"] < apart["weights"] < 2 * usual["weights"]
    assert 1.4 * usual["activations"] < apart["activations"] < 2 * usual["activations"]
    assert parts("trainer.minibatch_size=65536")["activations"] > 1.5 * usual["activations"]
    assert parts("env.num_envs=4096")["environments"] == 2 * usual["environments"]
    assert usual["environments"] == 2 * parts("env.device=cpu")["environments"]  # next episodes
    beside = parts("env.device=cpu", "vector.backend=workers", "vector.num_workers=4")
    assert beside["workers"] == 2 * parts("vector.backend=workers", "vector.num_workers=2")["workers"]
    slab = parts(machine=NO_GPU)["slab"]
    assert parts("vector.zero_copy=false", machine=NO_GPU)["slab"] == 2 * slab
    text = explain_text(resolved())
    assert "GPU memory = " in text
    assert "rollout 0.1" in text


def test_too_little_memory_is_told_before_it_happens_with_sizes_that_fit() -> None:
    small = dataclasses.replace(H100, gpus=(dataclasses.replace(CARD, free=2 * GIB),))
    words = ("env.num_envs=16384", "trainer.batch_size=2097152", "trainer.minibatch_size=262144")
    message = refusal(*words, machine=small)
    assert "GPU memory are needed (" in message
    assert "rollout 0.9" in message
    assert "has 2.0 GiB free" in message
    assert "or end the programs that use 77.0 GiB of it" in message
    cure = message.split("\ntry ")[1].split(", or")[0].split()
    done = resolved(*cure, machine=small)
    assert memory.total(done.memory, on_gpu=True) < 2 * GIB
    assert resolved(*words).config.trainer.batch_size == 2097152


def test_a_policy_too_large_for_the_card() -> None:
    assert "try a smaller policy.hidden_size" in refusal("policy.hidden_size=100000")


def test_offloaded_rollouts_lie_in_the_host() -> None:
    done = resolved("trainer.cpu_offload=true")
    assert memory.total(done.memory, on_gpu=False) > 100 << 20
    host = dataclasses.replace(H100, memory=GIB // 16)
    assert "but the machine has 0.1" in refusal("trainer.cpu_offload=true", machine=host)


def test_the_hosts_memory_is_checked_with_sizes_that_fit() -> None:
    words = ("env.num_envs=16384", "trainer.batch_size=8388608", "trainer.minibatch_size=1048576")
    machine = dataclasses.replace(NO_GPU, memory=64 * GIB, free=4 * GIB)
    message = refusal(*words, machine=machine)
    assert "GiB of host memory are needed (rollout 3.64, activations " in message
    assert "but the machine has 64.0, of which 4.0 are free" in message
    assert message.endswith(", or end other programs")
    cure = message.split("\ntry ")[1].split(", or")[0].split()
    done = resolved(*cure, machine=machine)
    assert memory.total(done.memory, on_gpu=False) <= 0.9 * 4 * GIB
    assert resolved(*words, machine=dataclasses.replace(machine, free=None)).config.env.num_envs == 16384
    assert "host memory = " in explain_text(done)


@pytest.mark.parametrize("profile", [*CARDS, "apple_silicon"])
def test_the_profile_of_every_card(profile: str) -> None:
    for env in ("grid", "grid_arena", "counter"):
        for machine in (H100, AMD, NO_GPU):
            done = resolved(f"hardware={profile}", f"env={env}", machine=machine)
            config = done.config
            agents = config.env.num_envs * config.env.agents_per_env
            assert config.trainer.batch_size == agents * config.trainer.bptt_horizon or env != "grid"
            assert agents >= (8000 if config.trainer.batch_size == 262144 and env != "counter" else 256)
    done = resolved(f"hardware={profile}")
    assert done.notes == []  # nothing of it has to be fitted to the grid
    assert memory.total(done.memory, on_gpu=True) < 3 * GIB


def test_the_backend_asks_for_an_engine_and_a_card() -> None:
    import torch

    from metta_fast.vector import make_vector

    for env, device in (("counter", torch.device("cuda")), ("grid", torch.device("cpu")), ("grid", None)):
        factory = make_factory(resolved(f"env={env}").config.env)
        with pytest.raises(UserError, match=r"needs an environment with a GPU engine and env\.device=cuda"):
            make_vector(factory, 8, backend="gpu", device=device)
    with pytest.raises(UserError, match="did you mean 'gpu'"):
        make_vector(factory, 8, backend="gpus")
