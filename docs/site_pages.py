"""Makes the pages of the site that are not files of docs/ (a hook of mkdocs, named in mkdocs.yml).

    README, CONTRIBUTING, CHANGELOG  ─►  index.md, contributing.md, changelog.md     links rewritten for the site
    metta_fast/config/schema.py         ─►  reference.md                            every key, as in --help

mkdocs build --strict
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FROM_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages; mkdocs calls it with the files of docs/."""
    from mkdocs.structure.files import File

    for name, place in FROM_ROOT.items():
        text = site_links((ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, place, content=text))
    files.append(File.generated(config, "reference.md", content=reference()))
    return files


def site_links(text: str) -> str:
    """Rewrites the links of a page at the repository's root for a page in docs/."""
    text = text.replace("](docs/", "](")
    for name, place in FROM_ROOT.items():
        text = text.replace(f"]({name}", f"]({place}")
    return text


def reference() -> str:
    """Returns every group and key of the configuration as Markdown, from the schema."""
    sys.path.insert(0, str(ROOT))  # the checkout's schema, also where another metta_fast is installed
    try:
        from metta_fast.config.keys import GROUPS, shown
        from metta_fast.resolve.config_files import options
        from metta_fast.resolve.explain import SECTIONS, about, headline, sections
    finally:
        sys.path.remove(str(ROOT))
    lines = [
        "# Reference",
        "",
        "Generated from the schema (`metta_fast/config/schema.py`) when the site was built; "
        "`python run_optimized.py --help` prints the same for your version. "
        "How values are combined, and which keys matter: "
        "[Configuration](configuration.md).",
    ]
    for section, entries in sections().items():
        lines += ["", f"## {SECTIONS[section]}"]
        for entry in entries:
            lines += ["", f"### `{entry.path}` {{ #{entry.path} }}", ""]
            lines += [f"Default: `{shown(entry.default)}`", "", f"{plain(about(entry))}"]
    lines += ["", "## Groups", "", "`group=option` selects a file of `configs/`."]
    for group in GROUPS:
        lines += ["", f"### `{group}=` {{ #group-{group} }}", "", "| option | what |", "|---|---|"]
        lines += [f"| `{option}` | {plain(headline(group, option))} |" for option in options(group)]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Escapes text so that Markdown leaves it as it is."""
    return re.sub(r"([\\`*_\[\]<>|#{}])", lambda found: f"&#{ord(found[1])};", text.replace("&", "&amp;"))
