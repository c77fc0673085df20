"""Tests the page in a headless Chromium: pixels, clicks and keys."""

import json
import re

import gymnasium
import numpy as np
import pytest
import torch

from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.recording import Recording, World
from metta_fast.envs.frame_recorder import FrameRecorder
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.episodes import html
from metta_fast.episodes.html import page, write_page
from metta_fast.episodes.record import record
from metta_fast.inference.players import PolicyPlayer
from metta_fast.policy import make_policy
from tests.episodes.browser import Browser, find
from tests.episodes.worlds import busy_recording

needs_browser = pytest.mark.skipif(
    find() is None, reason="no Chromium (apt-get install chromium-headless-shell)"
)


@pytest.fixture(scope="module")
def busy():
    return busy_recording()[1]


@pytest.fixture(scope="module")
def file(busy, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "busy.html"
    write_page(busy, path)
    return path


@pytest.fixture(scope="module")
def browser():
    with Browser() as open_browser:
        yield open_browser


@pytest.fixture
def opened(browser, file):
    browser.prefer("light")
    browser.open(file)
    yield browser
    assert browser.errors() == []


def state(browser):
    return browser.js("({...document.body.dataset})")


def cell_center(browser, row, col):
    """CSS pixels from the map's corner."""
    size = float(browser.js("document.getElementById('map').dataset.cell"))
    return (col + 0.5) * size, (row + 0.5) * size


def color_at(browser, row, col, down=0.5, right=0.5):
    """The map's pixel at a share of a cell."""
    return tuple(
        browser.js(
            f"""(() => {{ const map = document.getElementById('map'), cell = Number(map.dataset.cell);
            const at = map.getContext('2d').getImageData(({col} + {right}) * cell, ({row} + {down}) * cell, 1, 1);
            return [...at.data.slice(0, 3)]; }})()"""
        )
    )


def test_the_file_holds_all_and_names_no_other(busy):
    text = page(busy)
    assert not re.search(r"https?://|src=|@import|url\(|<link", text)
    data = re.search(r'id="recording">(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(data) == json.loads(json.dumps(busy.to_json()))


def test_text_of_the_recording_cannot_break_out(busy):
    evil = "</script><script>window.broken = 1</script>"
    changed = Recording.from_json(json.loads(json.dumps(busy.to_json())))
    changed.about = {"run": evil, "env": evil}
    changed.stats = {evil: changed.stats["hearts"]}
    assert evil not in page(changed)


@needs_browser
def test_it_asks_for_nothing_and_complains_of_nothing(opened, file):
    assert opened.requests() == [file.as_uri()]
    assert state(opened)["step"] == "0"


@needs_browser
def test_the_map_is_drawn_cell_for_cell(opened, busy):
    """Walls, floor and agents have their colours where the recording has them."""
    facts, tracks = busy.world.facts, busy.world.tracks
    for step in (0, 57, busy.steps):
        opened.js(f"location.hash = 'step={step}'")
        opened.wait(f"document.body.dataset.step == '{step}'")
        agents = {(tracks["agent_row"][step, k], tracks["agent_col"][step, k]): k for k in range(busy.agents)}
        objects = {
            (tracks["object_row"][step, j], tracks["object_col"][step, j])
            for j in range(len(facts["object_type"]))
        }
        colors = {}
        for row in range(facts["height"]):
            for col in range(facts["width"]):
                # lower corner: nothing but the cell's own; an agent: between disc and number
                here = (row, col)
                kind = (
                    f"agent {agents[here]}"
                    if here in agents
                    else "object"
                    if here in objects
                    else facts["walls"][row][col]
                )
                colors.setdefault(kind, set()).add(color_at(opened, row, col, 0.76, 0.5))
        assert len(colors["#"]) == 1
        assert colors["#"].isdisjoint(colors["."])
        assert colors["object"].isdisjoint(colors["#"] | colors["."])
        each = [colors[f"agent {k}"] for k in range(busy.agents)]
        assert all(len(found) == 1 for found in each)
        assert len(set.union(*each)) == busy.agents


@needs_browser
def test_a_click_on_an_agent_picks_it_and_tells_of_it(opened, busy):
    step, tracks = 80, busy.world.tracks
    opened.js(f"location.hash = 'step={step}'")
    opened.wait(f"document.body.dataset.step == '{step}'")
    before = opened.pixels()
    for k in range(busy.agents):
        x, y = cell_center(opened, tracks["agent_row"][step, k], tracks["agent_col"][step, k])
        opened.click_in("#map", x, y)
        assert state(opened)["agent"] == str(k)
        told = opened.js("document.getElementById('detail').innerText").lower()
        assert f"agent {k}" in told
        assert f"row {tracks['agent_row'][step, k]}, column {tracks['agent_col'][step, k]}" in told
        held = opened.js("Object.fromEntries([...document.querySelectorAll('#detail .item')]"
                         ".map(e => [e.dataset.item, Number(e.querySelector('b').innerText)]))")  # fmt: skip
        items = busy.world.facts["items"]
        assert held == {n: c for n, c in zip(items, tracks["agent_item"][step, k].tolist()) if c}
        returned = opened.js(f"document.querySelector('tr[data-agent=\"{k}\"] td:last-child').innerText")
        assert float(returned) == pytest.approx(busy.returns()[step, k], abs=6e-4)
    assert (opened.pixels() != before).any()
    walls = busy.world.facts["walls"]
    assert walls[0][0] == "#"
    opened.click_in("#map", *cell_center(opened, 0, 0))
    assert state(opened)["agent"] == ""


@needs_browser
def test_a_click_on_a_converter_tells_of_it(opened, busy):
    facts, tracks = busy.world.facts, busy.world.tracks
    mine = facts["object_type"].index(facts["types"].index("mine_red"))
    opened.click_in(
        "#map", *cell_center(opened, tracks["object_row"][0, mine], tracks["object_col"][0, mine])
    )
    told = opened.js("document.getElementById('detail').innerText").lower()
    assert "mine red" in told
    assert "nothing → 1 ore red" in told
    assert "ore red\n5" in told


@needs_browser
def test_a_thick_border_is_cut_and_clicks_still_hit(browser, tmp_path):
    thick = busy_recording(border=6)[1]
    write_page(thick, tmp_path / "thick.html")
    browser.open(tmp_path / "thick.html")
    height = float(browser.js("document.getElementById('map').clientHeight"))
    cell = float(browser.js("document.getElementById('map').dataset.cell"))
    assert round(height / cell) == 8 < thick.world.facts["height"] == 18
    for k in range(thick.agents):
        row, col = (int(thick.world.tracks[f"agent_{axis}"][0, k]) for axis in ("row", "col"))
        browser.click_in("#map", *cell_center(browser, row - 5, col - 5))
        assert state(browser)["agent"] == str(k)


@needs_browser
def test_keys(opened, busy):
    def after(*keys, shift=False):
        for key in keys:
            opened.key(key, shift)
        return state(opened)

    assert after("ArrowRight", "ArrowRight", "ArrowLeft")["step"] == "1"
    assert after("ArrowRight", shift=True)["step"] == "11"
    assert after("End")["step"] == str(busy.steps)
    assert after("ArrowRight")["step"] == str(busy.steps)
    assert after("Home")["step"] == "0"
    assert after("n", "n")["agent"] == "1"
    assert after("p", "p")["agent"] == str(busy.agents - 1)
    assert after("Escape")["agent"] == ""
    assert after("End", " ")["playing"] == "true"
    assert after(" ")["playing"] == "false"


@needs_browser
def test_it_plays_to_the_end_and_stops(opened, busy):
    opened.js("location.hash = 'step=290'")
    opened.wait("document.body.dataset.step == '290'")
    opened.js(
        "document.getElementById('fps').value = '40'; document.getElementById('fps').onchange({target: {value: '40'}})"
    )
    opened.click_in("#play")
    opened.wait("document.body.dataset.playing == 'false'")
    assert state(opened)["step"] == str(busy.steps)


@needs_browser
def test_buttons_scrubber_plot_and_rows(opened, busy):
    for button, step in (("last", busy.steps), ("back", busy.steps - 1), ("first", 0), ("next", 1)):
        opened.click_in(f"#{button}")
        assert state(opened)["step"] == str(step)
    width, height = opened.js(
        "[document.getElementById('scrubber').clientWidth, document.getElementById('plot').clientWidth]"
    )
    opened.click_in("#scrubber", width / 2)
    assert int(state(opened)["step"]) == pytest.approx(busy.steps / 2, abs=3)
    opened.click_in("#plot", 46 + (height - 56) * 0.25, 60)
    assert int(state(opened)["step"]) == pytest.approx(busy.steps / 4, abs=3)
    opened.key("ArrowRight")  # keys are the page's also after a click on the scrubber
    assert int(state(opened)["step"]) == pytest.approx(busy.steps / 4 + 1, abs=3)
    opened.click_in("tr[data-agent='2']")
    assert state(opened)["agent"] == "2"
    opened.click_in("tr[data-agent='2']")
    assert state(opened)["agent"] == ""


@needs_browser
def test_the_address_keeps_step_and_agent(opened, browser, file):
    opened.key("ArrowRight")
    opened.key("n")
    opened.wait("location.hash == '#step=1&agent=0'")
    browser.open(file, "#step=42&agent=2")
    assert {k: state(browser)[k] for k in ("step", "agent")} == {"step": "42", "agent": "2"}
    browser.open(file, "#step=99999&agent=77")
    assert {k: state(browser)[k] for k in ("step", "agent")} == {"step": "300", "agent": ""}
    browser.open(file, "#step=x")
    assert state(browser)["step"] == "0"


@needs_browser
def test_dark_and_light_by_preference_and_by_the_button(browser, file):
    def brightness():
        return browser.pixels()[:40, :40].mean()

    browser.prefer("dark")
    browser.open(file)
    dark = brightness()
    browser.prefer("light")
    browser.wait("document.documentElement.dataset.theme == 'light'")
    assert dark < 60 < 200 < brightness()
    browser.click_in("#theme")
    assert brightness() == dark
    browser.key("t")
    assert brightness() > 200
    browser.prefer("dark")
    browser.open(file)
    floor_dark = browser.pixels().mean()
    assert floor_dark < 80


@needs_browser
def test_a_narrow_window_and_a_dense_screen_show_all(file):
    with Browser(420, 900, scale=2) as browser:
        browser.open(file, "#agent=1")
        assert browser.js("document.documentElement.scrollWidth") <= 420
        x, y = cell_center(browser, 0, 0)
        browser.click_in("#map", x, y)
        assert state(browser)["agent"] == ""
        assert browser.errors() == []


def plain(world):
    rewards = np.array([[0.5], [-1.0], [0.0]], np.float32)
    action = np.array([[[0.25, -1]], [[1, 0]], [[0.5, 0.5]]], np.float32)
    return Recording(
        {"env": "mine"}, {"kind": "box", "width": 2, "start": [0, 0]}, action, rewards, np.array([3]), np.array([True]),
        {"score": np.array([np.nan])}, world,
    )  # fmt: skip


@needs_browser
def test_other_worlds_show_figures(browser, tmp_path):
    write_page(plain(World()), tmp_path / "plain.html")
    browser.open(tmp_path / "plain.html", "#step=1&agent=0")
    assert browser.errors() == []
    assert "0.25, -1" in browser.js("document.getElementById('detail').innerText")
    assert browser.js("document.getElementById('map').offsetHeight") == 0
    browser.key("End")
    assert "-0.5" in browser.js("document.getElementById('agents').innerText")


def shades(values, size=(60, 80)):
    """A recording whose picture after t steps has gray values[t]."""
    shade = 0
    recorder = FrameRecorder(lambda: np.full((*size, 3), shade, np.uint8))
    for shade in values:  # noqa: B007 - read by the renderer
        recorder.see()
    made = plain(recorder.world())
    made.reward = np.zeros((len(values) - 1, 1), np.float32)
    made.action = np.zeros((len(values) - 1, 1, 2), np.float32)
    return made


def gray(browser, wanted):
    middle = "document.getElementById('map').getContext('2d').getImageData(50, 50, 1, 1).data[0]"
    browser.wait(f"Math.abs({middle} - {wanted}) < 3")


@needs_browser
@pytest.mark.parametrize("film", [True, False])
def test_images_are_shown(browser, tmp_path, monkeypatch, film):
    if film:
        pytest.importorskip("av")
    else:
        monkeypatch.setattr(html, "has_encoder", lambda: False)
    values = [(37 * t) % 250 for t in range(120)]
    file = tmp_path / "frames.html"
    write_page(shades(values), file)
    browser.open(file)
    for step in (0, 1, 2, 119, 63, 62, 7):
        browser.js(f"location.hash = 'step={step}'")
        browser.wait(f"document.body.dataset.step == '{step}'")
        gray(browser, values[step])
    browser.key("ArrowRight")
    gray(browser, values[8])
    browser.key("End")
    gray(browser, values[119])
    browser.click_in("#scrubber")
    assert int(state(browser)["step"]) == pytest.approx(60, abs=2)
    gray(browser, values[int(state(browser)["step"])])
    browser.js("location.hash = 'step=100'")
    browser.wait("document.body.dataset.step == '100'")
    browser.click_in("#play")
    browser.wait("document.body.dataset.playing == 'false'")
    gray(browser, values[119])
    browser.key("t")  # drawn again, at the same step
    gray(browser, values[119])
    assert all(url == file.as_uri() or url.startswith(("blob:", "data:")) for url in browser.requests())
    assert browser.errors() == []


@needs_browser
def test_a_film_that_does_not_play_is_told(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "has_encoder", lambda: True)
    monkeypatch.setattr(html, "encode_film", lambda frames: b"no film")
    write_page(shades([1, 2]), tmp_path / "broken.html")
    browser.open(tmp_path / "broken.html")
    browser.wait("document.getElementById('world').innerText.includes('cannot play the pictures')")
    browser.key("ArrowRight")
    assert state(browser)["step"] == "1"


def test_a_film_is_a_small_part_of_its_images(monkeypatch):
    """A textured square moves over a textured floor: what a JPEG holds anew each time."""
    pytest.importorskip("av")
    noise = np.random.default_rng(0).integers(0, 255, (2, 24, 24, 3), dtype=np.uint8)
    floor = np.tile(noise[0], (5, 6, 1)).repeat(2, 0).repeat(2, 1)
    t = 0

    def render():
        frame = floor.copy()
        frame[40:64, t : t + 24] = noise[1]
        return frame

    recorder = FrameRecorder(render)
    for t in range(200):  # noqa: B007 - read by the renderer
        recorder.see()
    moving = plain(recorder.world())
    small = len(page(moving))
    monkeypatch.setattr(html, "has_encoder", lambda: False)
    assert small < len(page(moving)) / 8


class Drifting(gymnasium.Env):
    """Two numbers that rise and fall; nine more in a leaf of their own."""

    observation_space = gymnasium.spaces.Dict(
        many=gymnasium.spaces.Box(-1, 1, (9,)), place=gymnasium.spaces.Box(-1, 1, (2,))
    )
    action_space = gymnasium.spaces.Discrete(3, start=5)

    def seen(self):
        place = np.array([self.t / 40 - 0.5, 0.5 - self.t / 40], np.float32)
        return {"place": place, "many": np.full(9, self.t / 40, np.float32)}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.seen(), {}

    def step(self, action):
        self.t += 1
        return self.seen(), 1.0, self.t == 40, False, {}


def drifting():
    factory = PythonEnvFactory(lambda index: Drifting(), name="drifting")
    policy = make_policy(PolicyConfig(hidden_size=8), factory.spec)
    player = PolicyPlayer(policy, factory.spec, torch.device("cpu"), deterministic=False)
    return record(factory, player, seed=1, about={"env": "drifting"})


def test_what_an_agent_saw_and_expected_is_in_the_recording(tmp_path):
    recording = drifting()
    assert recording.observation["place"].shape == (41, 1, 2)
    assert recording.observation["place"][40, 0] == pytest.approx([0.5, -0.5])
    assert recording.value.shape == (40, 1)
    assert np.isfinite(recording.value).all()
    recording.save(tmp_path / "r.json")
    again = Recording.load(tmp_path / "r.json")
    assert np.array_equal(again.value, recording.value)
    assert np.array_equal(again.observation["many"], recording.observation["many"])


@needs_browser
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_a_plain_environment_fills_its_window(width, height, tmp_path):
    write_page(drifting(), tmp_path / "plain.html")
    with Browser(width, height) as opened:
        opened.prefer("light")
        opened.open(tmp_path / "plain.html", "#step=30")
        titles = opened.js("[...document.querySelectorAll('#charts b')].map((b) => b.textContent)")
        assert titles == [
            "observation: many",
            "observation: place",
            "action: number of the choice",
            "value that the policy expects",
        ]
        assert "0 0.25 1 -0.25" in opened.js("document.querySelectorAll('#charts span')[1].textContent")
        assert opened.js("document.documentElement.scrollWidth") <= width  # nothing to scroll sideways
        filled = opened.js("document.querySelector('footer').getBoundingClientRect().bottom")
        assert filled > 0.93 * height
        if width > 1000:
            assert opened.js("document.documentElement.scrollHeight") == height
        for k in range(4):
            inked = opened.js(
                f"(() => {{ const c = document.querySelectorAll('#charts canvas')[{k}];"
                " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                " let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })()"
            )
            assert inked > 300
        opened.click_in("#charts canvas", x=46 + 0.5)
        assert state(opened)["step"] == "0"
        assert opened.errors() == []
