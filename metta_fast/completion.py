"""Writes scripts that complete metta-fast's commands, options, keys and values in bash, zsh and fish.

    source <(metta-fast --completion bash)                  # in ~/.bashrc; zsh: the same with zsh, in ~/.zshrc
    metta-fast --completion fish | source                   # in ~/.config/fish/config.fish

A script holds all words, so that a tab starts no Python: source it again after an update. It completes
run_ultra_fast.sh and run_optimized.py too. Only the names of runs are read from the folder runs/ at each tab.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from shlex import quote

from metta_fast.config.keys import GROUPS, Key
from metta_fast.contracts.errors import UserError
from metta_fast.resolve.arguments import ENTRY_POINTS
from metta_fast.resolve.config_files import options
from metta_fast.resolve.explain import about, sections

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "DIR")
"""Metavars of options that take a file."""


@dataclass
class Command:
    """Holds what may follow a command."""

    options: dict[str, str] = field(default_factory=dict)
    """Option → its help."""
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Option → the values that it takes."""
    files: tuple[str, ...] = ()
    """Options that take a file."""
    keys: dict[str, str] = field(default_factory=dict)
    """`key=` → its help."""
    values: tuple[str, ...] = ()
    """`key=value`, for keys with few values."""
    runs: bool = False
    """Whether it takes a run."""


def script(
    shell: str, commands: Mapping[str, argparse.ArgumentParser | None], helps: Mapping[str, str]
) -> str:
    """Returns a shell's completion script.

    Args:
        commands: command → its parser; None: it takes the configuration's keys (train).
        helps: command → a short help.

    Raises:
        UserError: no such shell.
    """
    if shell not in SHELLS:
        raise UserError(f"--completion {shell}: expected one of {', '.join(SHELLS)}")
    found = {name: train() if parser is None else of_parser(parser) for name, parser in commands.items()}
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](found, helps)


def of_parser(parser: argparse.ArgumentParser) -> Command:
    """Reads a parser's options."""
    found = Command()
    for action in parser._actions:
        name = next((option for option in action.option_strings if option.startswith("--")), None)
        if name is None:
            found.runs |= action.metavar == "RUN"
            if action.metavar == "KEY=VALUE":
                words = train()
                found.keys, found.values = words.keys, words.values
            continue
        found.options[name] = (action.help or "").replace("%%", "%")
        braces = re.fullmatch(r"\{(.*)\}", action.metavar) if isinstance(action.metavar, str) else None
        if action.choices or braces:
            found.choices[name] = tuple(map(str, action.choices or (braces[1].split(",") if braces else ())))
        elif action.metavar in FILES:
            found.files += (name,)
    return found


def train() -> Command:
    """Returns the configuration's groups and keys, and the options of `train`."""
    found = Command({
        "--help": "explain every key",
        "--explain": "print each value and where it comes from, and stop",
        "--cfg": "print the resolved configuration as YAML, and stop",
        "--config-dir": "a folder of your own with hardware/, env/, policy/ … files",
        "--trust": "with resume= or init_from=: import whatever code that run names",
    }, {"--cfg": ("job",)}, ("--config-dir",))  # fmt: skip
    values: list[str] = []
    for group in GROUPS:
        named = list(options(group))
        found.keys[f"{group}="] = f"one of {len(named)} files, or your own" if named else "your own"
        if group not in ENTRY_POINTS:
            found.keys[f"{group}="] = "a profile: " + ", ".join(named)
        values += [f"{group}={name}" for name in named]
    for entries in sections().values():
        for entry in entries:
            if f"{entry.path}=" not in found.keys:
                found.keys[f"{entry.path}="] = about(entry)
            values += [f"{entry.path}={value}" for value in _values(entry)]
    found.values = tuple(dict.fromkeys(values))
    return found


def _values(entry: Key) -> tuple[str, ...]:
    """Returns the values of a key that has few of them."""
    words = [str(choice) for choice in entry.choices or ()]
    words += ["true", "false"] if entry.kind == "bool" else []
    words += ["auto"] if entry.auto and "auto" not in words else []
    words += ["null"] if entry.null and words else []
    return tuple(words)


# ── bash and zsh: one `case` for the words of each command ──

_HEAD = "# Completion of metta-fast for {shell}: {how}\n"
PROGRAMS = "metta-fast run_ultra_fast.sh run_optimized.py"


def _words(words: Iterable[str]) -> str:
    return quote(" ".join(words))


def _cases(found: Mapping[str, Command]) -> str:
    """Returns shell code that sets options, keys, values, choices, files and runs for $command and $before."""
    lines = ['    case "$command" in']
    for name, one in found.items():
        lines += [
            f"        {name})",
            f"            options={_words(one.options)}",
            f"            keys={_words(one.keys)}",
            f"            values={_words(one.values)}",
            f"            runs={'yes' if one.runs else ''} ;;",
        ]
    lines += ["    esac", '    case "$command $before" in']
    for name, one in found.items():
        lines += [
            f"        {quote(f'{name} {option}')}) choices={_words(c)} ;;"
            for option, c in one.choices.items()
        ]
        lines += [f"        {quote(f'{name} {option}')}) files=yes ;;" for option in one.files]
    return "\n".join([*lines, "    esac"])


def _bash(found: Mapping[str, Command], helps: Mapping[str, str]) -> str:
    del helps  # bash shows none
    return (
        _HEAD.format(shell="bash", how="source <(metta-fast --completion bash)")
        + f"""\
_metta_fast() {{
    local line=${{COMP_LINE:0:COMP_POINT}} options= keys= values= choices= files= runs= candidates= run
    local cur=${{line##*[[:space:]]}} command before
    local -a typed
    read -ra typed <<<"${{line%"$cur"}}"
    before=${{typed[${{#typed[@]}}-1]}}
    command=${{typed[1]}}
    case "${{typed[0]##*/}}" in run_*) command=train ;; esac
{_cases(found)}
    if [ -z "$command" ]; then
        candidates={_words([*found, "--help", "--version", "--completion"])}
    elif [ "$command" = --completion ]; then
        candidates={_words(SHELLS)}
    elif [ -n "$choices" ]; then
        candidates=$choices
    elif [ -z "$files" ]; then
        case "$cur" in
            -*) candidates=$options ;;
            resume=* | init_from=*)
                [ "${{cur%%=*}}" = resume ] && candidates=resume=auto
                for run in runs/*/config.yaml; do candidates+=" ${{cur%%=*}}=${{run%/config.yaml}}"; done ;;
            *=*) candidates=$values ;;
            *)
                candidates=$keys
                [ -n "$runs" ] && for run in runs/*/config.yaml; do candidates+=" ${{run%/config.yaml}}"; done ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$candidates" -- "$cur"))
    case "${{COMPREPLY[0]}}" in *'*'*) COMPREPLY=() ;; esac  # there are no runs
    if [ ${{#COMPREPLY[@]}} = 0 ]; then
        compopt -o default 2>/dev/null
        return
    fi
    case "${{COMPREPLY[0]}}" in *=) [ ${{#COMPREPLY[@]}} = 1 ] && compopt -o nospace 2>/dev/null ;; esac
    # readline replaces only what follows the last `=` or `:`
    case "$cur" in *[=:]*) local kept=${{cur%"${{cur##*[=:]}}"}}; COMPREPLY=("${{COMPREPLY[@]#"$kept"}}") ;; esac
}}
complete -F _metta_fast {PROGRAMS}
"""
    )


def _zsh(found: Mapping[str, Command], helps: Mapping[str, str]) -> str:
    del helps
    return (
        f"#compdef {PROGRAMS}\n"
        + _HEAD.format(shell="zsh", how="source <(metta-fast --completion zsh), after compinit")
        + f"""\
_metta_fast() {{
    local cur=$PREFIX command=${{words[2]}} before=${{words[CURRENT-1]}}
    local options= keys= values= choices= files= runs=
    local -a names
    case "${{words[1]:t}}" in run_*) command=train ;; *) (( CURRENT == 2 )) && command= ;; esac
{_cases(found)}
    if [ -z "$command" ]; then
        compadd -- {" ".join([*found, "--help", "--version", "--completion"])}
    elif [ "$command" = --completion ]; then
        compadd -- {" ".join(SHELLS)}
    elif [ -n "$choices" ]; then
        compadd -- ${{=choices}}
    elif [ -n "$files" ]; then
        _files
    else
        names=(runs/*/config.yaml(N:h))
        case "$cur" in
            -*) compadd -- ${{=options}} ;;
            resume=*) compadd -- resume=auto resume=$^names ;;
            init_from=*) compadd -- init_from=$^names ;;
            *=*) compadd -- ${{=values}} ;;
            *)
                [ -n "$keys" ] && compadd -S '' -- ${{=keys}}
                [ -n "$runs" ] && compadd -- $names
                [ -z "$keys$runs" ] && _files ;;
        esac
    fi
}}
if [ "$funcstack[1]" = _metta_fast ]; then
    _metta_fast "$@"
else
    compdef _metta_fast {PROGRAMS}
fi
"""
    )


# ── fish: lines of `word<tab>help` ──


def _fish(found: Mapping[str, Command], helps: Mapping[str, str]) -> str:
    lines = [
        _HEAD.format(shell="fish", how="metta-fast --completion fish | source") + "function __metta_fast_words",
        "    set -l typed (commandline -opc)",
        "    set -l command $typed[2]",
        "    string match -q '*run_*' -- $typed[1]; and set command train",
        "    set -l cur (commandline -ct)",
        "    if test -z \"$command\"",
        _printed({**{name: helps.get(name, "") for name in found}, "--help": "", "--version": "", "--completion": ""}),
        "        return",
        "    end",
        "    switch \"$command $typed[-1]\"",
        _case(["--completion --completion"], dict.fromkeys(SHELLS, "")),
    ]  # fmt: skip
    for name, one in found.items():
        lines += [_case([f"{name} {o}"], dict.fromkeys(c, "")) for o, c in one.choices.items()]
        if one.files:
            lines.append(
                f"        case {' '.join(_fished(f'{name} {option}') for option in one.files)}\n"
                "        __fish_complete_path $cur\n        return"
            )
    lines += ["    end", '    switch "$command"']
    for name, one in found.items():
        lines.append(f"        case {name}")
        lines.append(
            "        if string match -q -- '-*' $cur\n"
            + _printed(one.options)
            + "\n        return\n        end"
        )
        if one.keys:
            values = dict.fromkeys(one.values, "")
            lines.append("        if string match -q -- '*=*' $cur\n" + _printed(values))
            lines.append(
                "        printf '%s\\n' resume=auto resume=(__metta_fast_runs) init_from=(__metta_fast_runs)\n"
                "        return\n        end"
            )
            lines.append(_printed(one.keys))
        if one.runs:
            lines.append("        __metta_fast_runs")
    lines += [
        "    end",
        "end",
        "function __metta_fast_runs",
        "    for run in runs/*/config.yaml",
        "        string replace /config.yaml '' $run",
        "    end",
        "end",
        *(f"complete -c {program} -f -a '(__metta_fast_words)'" for program in PROGRAMS.split()),
    ]
    return "\n".join(lines) + "\n"


def _case(words: Iterable[str], answers: Mapping[str, str]) -> str:
    return f"        case {' '.join(map(_fished, words))}\n{_printed(answers)}\n        return"


def _printed(words: Mapping[str, str]) -> str:
    """Returns fish code that prints words, each with its help cut to a line."""
    lines = [
        _fished(f"{word}\t{' '.join(text.split())[:70]}" if text else word) for word, text in words.items()
    ]
    return "        printf '%s\\n' " + " ".join(lines) if lines else "        true"


def _fished(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
