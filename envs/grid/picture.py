"""Draws a recorded grid world with Pillow as frames of a video that look like the page (metta_fast/episodes/page).

    for frame in frames(recording): …        # uint8 [height, width, 3], one per step, including the start

Whatever does not move is drawn once. Things are small pictures, drawn at four times their size, scaled down and pasted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.recording import Recording
from metta_fast.envs.grid.names import ITEMS
from metta_fast.envs.grid.recorder import BUSY

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

SIDE, LEAST, MOST = 640, 6, 40
"""Approximate pixels of the map's longer side; smallest and largest pixels of a cell."""
STRIP = 34
"""Height of the line of figures below the map, pixels."""
FLOOR, WALL, WALL_TOP, BACK, INK = ("#1b2129", "#1f262f"), "#3b4553", "#4b5768", "#0e1116", "#e6eaf0"
ICE, BADGE = "#7dd3fc", "#e6eaf0"
AGENTS = ("#e08a00", "#2f8fd8", "#159a6c", "#c2569a", "#7a5bd0", "#d1502c", "#8a8f2a", "#5d7a8c")
TILES = {
    "mine_red": "#d6453d", "mine_blue": "#3b7fd4", "mine_green": "#2f9e57", "generator_red": "#d6453d",
    "generator_blue": "#3b7fd4", "generator_green": "#2f9e57", "altar": "#c2388a", "armory": "#68727f",
    "lasery": "#c77700", "lab": "#1f8f8f", "factory": "#6d5bb5", "temple": "#a07a2c", "block": "#8a6d4b",
}  # fmt: skip
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "mine": [(5, 18, 3, 12, 8, 5, 16, 4, 21, 11, 19, 19, 11, 21)],
    "generator": [(13, 2, 5, 14, 11, 14, 9, 22, 18, 9, 12, 9)],
    "altar": [(12, 21, 3, 11, 2, 7, 5, 3, 9, 3, 12, 6, 15, 3, 19, 3, 22, 7, 21, 11)],
    "armory": [(12, 2, 21, 5, 21, 12, 18, 18, 12, 22, 6, 18, 3, 12, 3, 5)],
    "lasery": [(2, 10, 14, 10, 14, 7, 22, 12, 14, 17, 14, 14, 2, 14)],
    "lab": [(9, 2, 15, 2, 15, 9, 21, 20, 21, 22, 3, 22, 3, 20, 9, 9)],
    "factory": [(2, 22, 2, 10, 8, 14, 8, 10, 14, 14, 14, 4, 22, 4, 22, 22)],
    "temple": [(12, 2, 22, 8, 22, 10, 2, 10, 2, 8), (4, 11, 7, 11, 7, 19, 4, 19), (17, 11, 20, 11, 20, 19, 17, 19),
               (2, 20, 22, 20, 22, 22, 2, 22)],
    "block": [(3, 3, 21, 3, 21, 6, 3, 6), (3, 18, 21, 18, 21, 21, 3, 21), (3, 3, 6, 3, 6, 21, 3, 21),
              (18, 3, 21, 3, 21, 21, 18, 21)],
}  # fmt: skip
"""Polygons x, y, x, y, … in a square of 24 × 24."""
FACING = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Orientation → row, column."""
DEEDS = {"put_items": "#e08a00", "get_items": "#2fae62", "attack": "#e02d2d", "swap": "#7a5bd0"}
FINE = 4
"""Factor by which things are drawn too large."""


def steps_per_frame(recording: Recording) -> int:
    """Returns the number of steps between frames."""
    return 1


def frames(recording: Recording) -> Iterator[Array]:
    """Yields each step, 0 … steps, as uint8 [height, width, 3] with even sides."""
    painter = _Painter(recording)
    for step in range(recording.steps + 1):
        yield np.asarray(painter.paint(step))


class _Painter:
    def __init__(self, recording: Recording) -> None:
        from PIL import Image, ImageDraw

        self._image, self._draw = Image, ImageDraw.Draw
        self._rec, self._facts, self._tracks = recording, recording.world.facts, recording.world.tracks
        self._top, self._left, height, width = _cut(self._facts["walls"])
        self.cell = min(max(SIDE // max(height, width), LEAST), MOST)
        self._names = [self._facts["types"][kind] for kind in self._facts["object_type"]]
        self._out = [
            [ITEMS.index(item) for item in self._facts["recipes"].get(name, {"out": {}})["out"]]
            for name in self._names
        ]
        self._returns = recording.returns()
        self._still = self._paint_still(height, width)
        self._sprite = cache(self._make_sprite)

    def _paint_still(self, height: int, width: int) -> Image:
        cell = self.cell
        size = (max(width * cell, 220) + 1) // 2 * 2, (height * cell + STRIP + 1) // 2 * 2
        image = self._image.new("RGB", size, BACK)
        draw = self._draw(image)
        for row in range(self._top, self._top + height):
            for col in range(self._left, self._left + width):
                character = self._facts["walls"][row][col]
                x, y = (col - self._left) * cell, (row - self._top) * cell
                wall = character == "#"
                color = WALL if wall else FLOOR[(row + col) % 2]
                draw.rectangle((x, y, x + cell - 1, y + cell - 1), color)
                if wall and (row == 0 or self._facts["walls"][row - 1][col] != "#"):
                    draw.rectangle((x, y, x + cell - 1, y + max(1, cell // 6) - 1), WALL_TOP)
        return image

    def paint(self, step: int) -> Image:
        """Draws one step."""
        image = self._still.copy()
        draw = self._draw(image)
        for j, name in enumerate(self._names):
            self._paint_object(image, draw, step, j, name)
        for agent in range(self._rec.agents):
            self._paint_deed(draw, step, agent)
        for agent in range(self._rec.agents):
            place = self._place("agent", step, agent)
            facing = int(self._tracks["agent_orientation"][step, agent])
            frozen = bool(self._tracks["agent_frozen"][step, agent])
            self._paste(image, self._sprite("agent", agent, facing, frozen), place)
        self._paint_figures(draw, image.size, step)
        return image

    def _place(self, kind: str, step: int, i: int) -> tuple[int, int]:
        """Returns x, y of its cell in pixels."""
        row, col = self._tracks[f"{kind}_row"][step, i], self._tracks[f"{kind}_col"][step, i]
        return (int(col) - self._left) * self.cell, (int(row) - self._top) * self.cell

    @staticmethod
    def _paste(image: Image, sprite: Image, place: tuple[int, int]) -> None:
        image.paste(sprite, place, sprite)

    def _paint_object(self, image: Image, draw: ImageDraw, step: int, j: int, name: str) -> None:
        x, y = self._place("object", step, j)
        self._paste(image, self._sprite("tile", name), (x, y))
        cell, phase = self.cell, int(self._tracks["object_phase"][step, j])
        if phase:
            recipe = self._facts["recipes"][name]
            whole = recipe["ticks"] if phase == BUSY else recipe["cooldown"]
            done = 1 - (int(self._tracks["object_due"][step, j]) - step) / max(whole, 1)
            left, top, wide = x + cell * 0.14, y + cell * 0.8, cell * 0.72
            draw.rectangle((left, top, left + wide, top + cell * 0.08), "#5a2a28")
            draw.rectangle((left, top, left + wide * min(max(done, 0), 1), top + cell * 0.08), "#ffffff")
        stock = int(self._tracks["object_item"][step, j, self._out[j]].sum())
        if stock:
            self._paste(image, self._sprite("badge", stock), (x + cell // 2, y))

    def _paint_deed(self, draw: ImageDraw, step: int, agent: int) -> None:
        """Draws what was taken, put, swapped or shot at in this step."""
        if step == 0 or self._tracks["agent_failed"][step, agent]:
            return
        color = DEEDS.get(self._facts["actions"][int(self._rec.action[step - 1, agent, 0])])
        if color is None:
            return
        x, y = self._place("agent", step, agent)
        down, right = FACING[int(self._tracks["agent_orientation"][step, agent])]
        reach = 3 if color == DEEDS["attack"] else 1
        half, cell, width = self.cell / 2, self.cell, max(2, self.cell // 8)
        x2, y2 = x + right * cell * reach, y + down * cell * reach
        draw.line((x + half, y + half, x2 + half, y2 + half), color, width)
        if reach == 1:
            draw.rectangle((x2 + 1, y2 + 1, x2 + cell - 2, y2 + cell - 2), None, color, width)

    def _paint_figures(self, draw: ImageDraw, size: tuple[int, int], step: int) -> None:
        """Writes `step 120 of 1000` and each agent's return, or their mean if there is too little room."""
        width, y, font = size[0], size[1] - STRIP // 2, self._font(14)
        draw.text((10, y), f"step {step} of {self._rec.steps}", INK, font, "lm")
        returns = self._returns[step]
        room = (width - 150) // 72
        if len(returns) > room:
            draw.text((width - 10, y), f"mean return {returns.mean():.2f}", INK, font, "rm")
            return
        for agent, value in enumerate(returns):
            x = width - 72 * (len(returns) - agent)
            draw.ellipse((x, y - 8, x + 16, y + 8), agent_color(agent))
            draw.text((x + 8, y), str(agent), "#ffffff", self._font(11), "mm")
            draw.text((x + 21, y), f"{value:.2f}", INK, font, "lm")

    @staticmethod
    @cache
    def _font(size: int) -> Any:
        from PIL import ImageFont

        return ImageFont.load_default(size)

    # ── small pictures ──

    def _make_sprite(self, kind: str, *what: Any) -> Image:
        makers: dict[str, Callable[..., None]] = {
            "tile": self._tile,
            "agent": self._agent,
            "badge": self._badge,
        }
        side = self.cell // 2 if kind == "badge" else self.cell
        image = self._image.new("RGBA", (side * FINE, side * FINE))
        makers[kind](self._draw(image), side * FINE, *what)
        return image.resize((side, side), self._image.Resampling.LANCZOS)

    @staticmethod
    def _tile(draw: ImageDraw, side: int, name: str) -> None:
        gap = 0.06 * side
        draw.rounded_rectangle((gap, gap, side - gap, side - gap), 0.18 * side, TILES[name])
        unit, left, top = 0.52 * side / 24, 0.24 * side, 0.2 * side
        for points in SHAPES[name.split("_")[0]]:
            place = [(top if k % 2 else left) + unit * v for k, v in enumerate(points)]
            draw.polygon(place, "#ffffff")

    def _agent(self, draw: ImageDraw, side: int, agent: int, facing: int, frozen: bool) -> None:
        middle, radius, (down, right) = side / 2, 0.37 * side, FACING[facing]
        edge, width = (ICE, 0.11) if frozen else ("#ffffff", 0.05)
        for grow, color in ((0.0, edge), (width * side, agent_color(agent))):
            r, reach, wide = radius - grow, 0.5 * side - grow * 1.4, 0.27 * side - grow * 0.7
            draw.ellipse((middle - r, middle - r, middle + r, middle + r), color)
            base = middle + right * r * 0.72, middle + down * r * 0.72
            draw.polygon(
                (
                    middle + right * reach, middle + down * reach,
                    base[0] + down * wide, base[1] + right * wide,
                    base[0] - down * wide, base[1] - right * wide,
                ),
                color,
            )  # fmt: skip
        draw.text((middle, middle), str(agent), "#ffffff", self._font(round(0.42 * side)), "mm")

    def _badge(self, draw: ImageDraw, side: int, count: int) -> None:
        draw.ellipse((0.1 * side, 0, side, 0.9 * side), BADGE)
        draw.text((0.55 * side, 0.45 * side), str(count), BACK, self._font(round(0.6 * side)), "mm")


def _cut(walls: list[str]) -> tuple[int, int, int, int]:
    """Returns top, left, height, width of the visible part, which has one row of a thick border."""
    rows, cols = np.nonzero(np.array([list(line) for line in walls]) != "#")
    top, left = max(rows.min() - 1, 0), max(cols.min() - 1, 0)
    return (
        int(top),
        int(left),
        int(min(rows.max() + 2, len(walls)) - top),
        int(min(cols.max() + 2, len(walls[0])) - left),
    )


def agent_color(agent: int) -> str:
    """Returns an agent's colour, as on the page: one of eight distinguishable colours, then by the golden angle."""
    return AGENTS[agent] if agent < len(AGENTS) else f"hsl({agent * 137.508 % 360:.0f}, 55%, 48%)"
