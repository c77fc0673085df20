"""Shows an episode in the terminal: played on the screen and controlled with keys, or printed step by step.

    space play · ← → step · PgUp PgDn ten · home end · n p agent · + − speed · q quit

With NO_COLOR, or where the output is not a terminal, it uses plain ASCII. In a pipe all steps are printed at once.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.text import Text

from metta_fast.contracts.printable import printable
from metta_fast.contracts.recording import Recording
from metta_fast.episodes.views import world_lines

HINT = "space play · ← → step · PgUp PgDn ten · home end · n p agent · + - speed · q quit"
ASCII_HINT = HINT.replace("·", "|").replace("←", "<").replace("→", ">")
KEYS = {
    "\x1b[D": "left",
    "\x1b[C": "right",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1bOH": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
    "\x1bOF": "end",
    "\x1b[5~": "back",
    "\x1b[6~": "on",
    "\x1b": "q",
    "\x03": "q",
    "=": "+",
}
FASTEST = 100.0


@dataclass
class Screen:
    """Holds what the screen shows; keys and time change it."""

    recording: Recording
    step: int
    fps: float
    agent: int | None = None
    playing: bool = True
    over: bool = False

    def key(self, key: str) -> None:
        """Handles one key, named as in KEYS or by its character; unknown keys are ignored."""
        last, agents = self.recording.steps, self.recording.agents
        moves = {"left": -1, "right": 1, "back": -10, "on": 10, "home": -last, "end": last}
        if key in moves:
            self.playing = False
            self.move(moves[key])
        elif key == " ":
            self.playing = not self.playing
            if self.playing and self.step == last:
                self.step = 0
        elif key in ("n", "p"):
            by = 1 if key == "n" else -1
            self.agent = (0 if by > 0 else agents - 1) if self.agent is None else (self.agent + by) % agents
        elif key in ("+", "-"):
            self.fps = min(max(self.fps * (2 if key == "+" else 0.5), 0.5), FASTEST)
        elif key == "q":
            self.over = True

    def move(self, by: int) -> None:
        """Moves by a number of steps, within the episode."""
        self.step = min(max(self.step + by, 0), self.recording.steps)
        if self.step == self.recording.steps:
            self.playing = False

    def lines(self, columns: int, rows: int, *, ascii: bool, hint: str = "") -> list[Text]:
        """Draws at most `rows` lines: position and return, the world, the keys."""
        rec = self.recording
        rewards = float(rec.reward[: self.step].sum()) / rec.agents
        state = f"step {self.step} of {rec.steps}   mean return {rewards:.2f}"
        if hint:
            state += f"   {'playing' if self.playing else 'paused'}, {self.fps:g} steps/s"
        world = world_lines(rec, self.step, self.agent, columns=columns, rows=max(rows - 3, 8), ascii=ascii)
        return [Text(state, "bold"), Text(), *world, *([Text(hint, "bright_black")] if hint else [])]


def show_in_terminal(
    recording: Recording, *, fps: float, step: int | None = None, agent: int | None = None
) -> None:
    """Plays on the screen until q or Ctrl-C if the output is a terminal; otherwise prints every step.

    Args:
        step: first step shown; without a terminal the only one.
        agent: the highlighted agent.
    """
    console = Console(highlight=False)
    screen = Screen(recording, step or 0, fps, agent)
    if console.is_terminal:
        _play(console, screen)
        return
    try:
        for screen.step in range(recording.steps + 1) if step is None else [step]:
            lines = screen.lines(10**6, 10**6, ascii=True)
            print(printable("\n".join(line.plain.rstrip() for line in lines)), end="\n\n", flush=True)
    except BrokenPipeError:  # the reader (head, less) has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _play(console: Console, screen: Screen) -> None:
    plain = console.no_color or console.encoding.lower() not in ("utf-8", "utf8")

    def frame() -> Text:
        width, height = console.size
        lines = screen.lines(width, height, ascii=plain, hint=ASCII_HINT if plain else HINT)
        return Text("\n", no_wrap=True).join(lines)

    with _keys() as listening, Live(console=console, screen=True, auto_refresh=False) as live:
        due = time.monotonic()
        while not screen.over:
            live.update(frame(), refresh=True)
            due = max(due + 1 / screen.fps, time.monotonic())
            wait = max(due - time.monotonic(), 1 / screen.fps) if screen.playing else None
            if not listening and not screen.playing:
                break
            for key in _read(wait) if listening else _sleep(wait):
                screen.key(key)
            if screen.playing and time.monotonic() >= due:
                screen.move(1)


def _sleep(wait: float | None) -> Iterator[str]:
    time.sleep(wait or 0.0)
    return iter(())


@contextmanager
def _keys() -> Iterator[bool]:
    """Makes the terminal deliver single keys without showing them. Yields False if there is no keyboard."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _read(wait: float | None) -> Iterator[str]:
    """Yields the names of the keys pressed within `wait` seconds (None: waits for one)."""
    ready, _, _ = select.select([sys.stdin], [], [], wait)
    if not ready:
        return
    typed = os.read(sys.stdin.fileno(), 64).decode(errors="replace")
    if not typed:
        yield "q"  # the terminal is gone
    while typed:
        sequence = next((known for known in KEYS if len(known) > 1 and typed.startswith(known)), typed[0])
        if sequence == "\x1b" and len(typed) > 1:
            return  # an unknown key
        yield KEYS.get(sequence, sequence)
        typed = typed[len(sequence) :]
