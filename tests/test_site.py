"""Checks the site: pages are in the navigation, keys in the reference, nothing is loaded from other servers."""

import importlib.util
import re
import sys
import xml.etree.ElementTree as ElementTree
from html import unescape
from pathlib import Path

import pytest
import yaml

from metta_fast.config.keys import keys, shown
from metta_fast.resolve.explain import about, sections

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def load(name):
    """A program of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages():
    return load("site_pages")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    pytest.importorskip("material")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def test_every_key_is_in_the_reference(pages):
    text = pages.reference()
    described = {key.path: key for section in sections().values() for key in section}
    assert not set(keys()) - set(described)
    for path, key in described.items():
        head = f"### `{path}` {{ #{path} }}\n\nDefault: `{shown(key.default)}`\n\n"
        assert head in text, path
        said = text.split(head)[1].split("\n")[0]
        assert unescape(said) == about(key), path


def test_markdown_finds_nothing_in_plain_text(pages):
    odd = r"a_b *c* [d](e) <f> `g` | h & i \ {j} #k"
    assert unescape(pages.plain(odd)) == odd
    assert not set("*[]<>`|\\{}_") & set(pages.plain(odd))


def test_every_page_is_in_the_navigation(pages):
    nav = str(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    for page in [*(path.name for path in DOCS.glob("*.md")), *pages.FROM_ROOT.values(), "reference.md"]:
        assert re.search(rf"'{page}'", nav), f"mkdocs.yml gives {page} no place"


def test_the_readers_browser_fetches_nothing_from_elsewhere(site):
    for page in site.glob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\bsrc=[\"']?([^\"' >]+)", text)
        loaded += re.findall(r"<link[^>]*\bhref=[\"']?([^\"' >]+)", text)
        assert loaded
        assert not [name for name in loaded if name.startswith(("http:", "https:", "//"))], page.name


def test_the_built_reference_has_every_key(site):
    text = (site / "reference.html").read_text()
    for path in keys():
        assert f'id="{path}"' in text, path


def test_no_program_of_docs_is_published(site):
    assert not list(site.glob("*.py"))


EXAMPLES = re.compile(r"my_|\barm\.|test_arm|<|…")
"""Files of a reader's own, which pages tell them to write."""


@pytest.mark.parametrize(
    "page", sorted([*DOCS.glob("*.md"), *map(ROOT.joinpath, ("README.md", "CONTRIBUTING.md"))])
)
def test_files_that_a_page_names_exist(page):
    files = re.findall(r"`((?:[\w.]+/)+\w+\.(?:py|pyx|pxd|h|yaml))\b", page.read_text())
    folders = re.findall(r"`((?:metta_fast|envs|configs|tests|docs)/[\w/]*)`", page.read_text())
    for name in {name for name in [*files, *folders] if not EXAMPLES.search(name)}:
        places = [ROOT / name, ROOT / "metta_fast" / name]
        assert any(place.exists() for place in places), f"{page.name} names {name}"


def test_the_chart_shows_readmes_figures():
    charts = load("charts")
    rows = charts.figures((ROOT / "README.md").read_text())
    assert len(rows) >= 4
    assert charts.PICTURE.read_text() == charts.draw(rows), "README's figures changed: python docs/charts.py"
    rows = charts.gpu_figures((DOCS / "gpu.md").read_text())
    assert len(rows) >= 4
    assert charts.GPU_PICTURE.read_text() == charts.draw(rows, charts.GPU), (
        "gpu.md changed: python docs/charts.py"
    )


@pytest.mark.parametrize(("text", "value"), [("16.6M steps/s on a core", 16.6e6), ("150k steps/s", 150e3)])
def test_a_figure_is_read(text, value):
    (row,) = load("charts").figures(f"| a `b` | {text} | 2 cores | `c` |\n| d | 20.5 times | e | f |\n")
    assert (row.what, row.machine, row.value) == ("a b", "2 cores", pytest.approx(value))


@pytest.mark.parametrize("name", ["flow.svg", "speed.svg", "gpu.svg"])
def test_a_drawing_is_readable_in_light_and_dark(name):
    text = (DOCS / name).read_text()
    ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    assert 'class="plate"' in text  # a ground of its own: the page's theme may differ from the system's
    assert not re.search(r"(?:href|url)\W+https?:", text)
