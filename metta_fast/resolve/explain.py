"""Formats the configuration for --help, --explain and --cfg job.

metta-fast train --help                       # every key, its default and choices
metta-fast train env=grid_solo --explain      # every value and where it comes from
metta-fast train --cfg job                    # the resolved configuration as YAML
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence

import yaml

from metta_fast.algorithms.registry import find_kind, kind_of, known_algorithms, own_keys
from metta_fast.config.encoding.leaf_notes import kind_lines
from metta_fast.config.frame_stack import stacked
from metta_fast.config.keys import GROUPS, Key, config_to_dict, get, keys, shown
from metta_fast.envs import is_ours
from metta_fast.machine.hardware import GIB
from metta_fast.resolve.algorithm_keys import LEFT_OUT, unread
from metta_fast.resolve.config_files import CONFIGS, options
from metta_fast.resolve.memory_estimate import describe, total
from metta_fast.resolve.resolve import Resolved

WIDTH = 110

SECTIONS = {
    "env": "Environment",
    "vector": "Stepping many environments",
    "policy": "Policy",
    "trainer": "Learning",
    "algorithm": "Algorithm",
    "distributed": "Several processes",
    "run": "Run",
    "wandb": "Weights & Biases",
    "": "General",
}

USAGE = """\
usage: metta-fast train [group=option …] [key=value …] [--help | --explain | --cfg job]
                        [--config-dir DIR] [--trust]

  metta-fast train                                      # hardware=auto env=grid policy=mlp
  metta-fast train env=grid_arena policy=lstm
  metta-fast train env.num_envs=1024 trainer.batch_size=262144 --explain

  --explain         print each value and where it comes from, and stop
  --cfg job         print the resolved configuration as YAML, and stop
  --config-dir DIR  a folder of your own with hardware/, env/, policy/ … files, chosen by name like ours
  --trust           with resume= or init_from=: import whatever code that run names, also if somebody else began it

Later sources override earlier ones: defaults < hardware profile < env and policy recipe < command line.
A recipe's section on_gpu holds where its environments step on the GPU, in place of all env recipes' plain values.
An environment that is not ours gets values derived from what it is and from trainer.total_timesteps instead of a
profile's, unless the profile is typed: --explain gives each value's reason.
A policy or environment of your own: policy=package.module:Class, env=package.module:function.
"""


def help_text(algorithms: Sequence[str] = ()) -> str:
    """Returns the usage, the options of each group, and every key with its help, default and allowed values.

    Args:
        algorithms: algorithms whose own keys are included, besides the registered ones.
    """
    lines = [USAGE, "Groups"]
    for group in GROUPS:
        found = options(group)
        if found:
            lines.append(f"  {group}=…")
            for option in found:
                line = f"{option:<13} {headline(group, option)}"
                lines += textwrap.wrap(line, WIDTH, initial_indent="    ", subsequent_indent=" " * 18)
    for section, entries in sections(algorithms).items():
        lines += ["", SECTIONS[section]]
        for entry in entries:
            lines.append(f"  {entry.path}={shown(entry.default)}")
            lines += textwrap.wrap(about(entry), WIDTH, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines) + "\n"


def about(entry: Key) -> str:
    """Returns a key's help and allowed values: a line of --help and of the site's reference."""
    if not entry.choices:
        return f"{entry.help} ({entry.expected()})"
    if all(str(choice) in entry.help for choice in entry.choices):
        return entry.help
    return f"{entry.help} ({', '.join(map(str, entry.choices))})"


def explain_text(resolved: Resolved) -> str:
    """Returns every value with its origin, the sizes derived from them, and the notes."""
    config = resolved.config
    lines = ["  ".join(f"{group}={resolved.groups[group]}" for group in GROUPS if group in resolved.groups)]
    hidden = set(unread(kind_of(config)))
    leaves = {
        path: get(config, path)
        for path in _in_order(resolved.origins)
        if path not in hidden or resolved.origins[path].startswith(LEFT_OUT)
    }
    width = max(len(f"{path}={shown(value)}") for path, value in leaves.items() if len(shown(value)) < 40)
    section = None
    for path, value in leaves.items():
        head = path.split(".")[0] if "." in path else ""
        if head != section:
            section = head
            lines += ["", SECTIONS.get(head, head)]
        lines.append(f"  {f'{path}={shown(value)}':<{width}}  # {resolved.origins[path]}")
    lines += ["", "Values derived from these"]
    lines += [f"  {name:<{width}}  # {why}" for name, why in _derived(resolved)]
    lines += ["", "Observation"]
    reasons = getattr(resolved.factory, "kind_reasons", {})
    seen = stacked(resolved.factory.spec, config.policy.frame_stack)
    for name, why in kind_lines(config.policy, seen, reasons):
        lines.append(f"  {name:<{width}}  # {why}")
    lines += _fast_paths(resolved)
    notes = [*resolved.remarks, *resolved.notes]
    if notes:
        lines += ["", "Notes"]
        for note in notes:
            lines += textwrap.wrap(note, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def _fast_paths(resolved: Resolved) -> list[str]:
    """Returns the lines on fast paths used and not used. Makes the policy, but starts no environments."""
    import torch

    from metta_fast.features import make_features
    from metta_fast.policy import make_policy
    from metta_fast.runtime.fast_paths import in_words

    config = resolved.config
    spec = resolved.factory.spec
    with torch.random.fork_rng(devices=()):
        policy = make_policy(config.policy, spec)
    choices = kind_of(config).fast_paths(config, spec, policy, make_features(config.features))
    if not choices:
        return []
    lines = ["", "Fast paths"]
    for text in in_words(choices):
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="      ")
    return lines


def cfg_text(resolved: Resolved) -> str:
    """Returns the resolved configuration as YAML."""
    return yaml.safe_dump(config_to_dict(resolved.config), sort_keys=False, allow_unicode=True)


def _derived(resolved: Resolved) -> list[tuple[str, str]]:
    config, env, vector = resolved.config, resolved.config.env, resolved.config.vector
    whole, rest = divmod(env.num_envs, vector.async_factor)
    return [
        (f"num_agents = {env.num_envs * env.agents_per_env}", "env.num_envs * env.agents_per_env"),
        (
            f"vector.envs_per_batch = {whole}" + (f" or {whole + 1}" if rest else ""),
            "env.num_envs / vector.async_factor: environments of one block",
        ),
        *kind_of(config).derived(config),
        *_episode_length(resolved),
        *_memory(resolved),
    ]


def _episode_length(resolved: Resolved) -> list[tuple[str, str]]:
    """Returns the line on the time limit that an environment that is not ours states."""
    if is_ours(resolved.config.env):
        return []
    limit = resolved.factory.spec.max_steps
    return [
        (
            f"episode length = {limit or 'unknown'}",
            "the time limit that the environment states, in agent steps",
        )
    ]


def _memory(resolved: Resolved) -> list[tuple[str, str]]:
    """Returns the lines of the memory estimate."""
    parts = resolved.memory
    on_gpu, host = total(parts, on_gpu=True), total(parts, on_gpu=False)
    found = []
    if on_gpu:
        found.append((f"GPU memory = {on_gpu / GIB:.1f} GiB", f"about: {describe(parts)}"))
    if host:
        found.append((f"host memory = {host / GIB:.1f} GiB", f"about: {describe(parts, on_gpu=False)}"))
    return found


def sections(algorithms: Sequence[str] = ()) -> dict[str, list[Key]]:
    """Returns the keys under the names of SECTIONS, in the schema's order.

    Args:
        algorithms: algorithms whose own keys are included, besides those of metta_fast and installed packages.
    """
    found: dict[str, list[Key]] = {name: [] for name in SECTIONS}
    for path, entry in keys().items():
        section = path.split(".")[0] if "." in path or path in SECTIONS else ""
        if entry.kind == "named":
            known = ", ".join(known_algorithms())
            entry = dataclasses.replace(
                entry, default=entry.default["name"], help=f"{entry.help}; known: {known}"
            )
        found[section].append(entry)
    having: dict[str, tuple[Key, list[str]]] = {}
    for name in dict.fromkeys([*known_algorithms(), *algorithms]):
        for entry in own_keys(find_kind(name)).values():
            having.setdefault(repr(entry), (entry, []))[1].append(name)
    for entry, names in having.values():
        found["algorithm"].append(
            dataclasses.replace(entry, help=f"algorithm={' or '.join(names)}: {entry.help}")
        )
    return found


def _in_order(origins: Mapping[str, str]) -> list[str]:
    """Returns the paths in the schema's order; those inside a dict take the dict's position."""
    place = {path: index for index, path in enumerate(keys())}

    def rank(path: str) -> int:
        while path not in place:
            path = path.rpartition(".")[0]
        return place[path]

    return sorted(origins, key=rank)


def headline(group: str, option: str) -> str:
    """Returns the first comment of a configuration file."""
    text = (CONFIGS / group / f"{option}.yaml").read_text(encoding="utf-8")
    comments = [line[1:].strip() for line in text.splitlines() if line.startswith("#")]
    return next((line for line in comments if not line.startswith("@")), "")
