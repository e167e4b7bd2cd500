"""Pages of the site that are generated or live elsewhere: commands, presets, the results, the changelog and the lab."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
LAB = "src/bsrs/data/lab"


def on_config(config: Any) -> Any:
    """Link to the repository that the clone came from, if it is on the web; BSRS_REPOSITORY names another."""
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    origin = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    url = os.environ.get("BSRS_REPOSITORY", re.sub(r"^git@([^:]+):", r"https://\1/", origin)).removesuffix(".git")
    if url.startswith("https://"):
        config["repo_url"], config["repo_name"] = url, "bsrs"
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, those of results/ with their pictures, CHANGELOG.md and the lab."""
    for page in sorted((ROOT / "results").rglob("*.md")):
        text = page.read_text(encoding="utf-8").replace("../docs/", "../").replace("README.md", "index.md")
        where = page.with_name(page.name.replace("README", "index")).relative_to(ROOT).as_posix()
        files.append(File.generated(config, where, content=text))
    for name in ("*.png", "*/*.png", "*.csv"):
        for picture in sorted((ROOT / "results").glob(name)):
            where = picture.relative_to(ROOT).as_posix()
            files.append(File.generated(config, where, abs_src_path=str(picture)))
    for name, content in (("changelog", changelog()), ("commands", commands()), ("presets", presets())):
        files.append(File.generated(config, f"{name}.md", content=content))
    for part in sorted((ROOT / LAB).iterdir()):
        files.append(File.generated(config, f"lab/{part.name}", abs_src_path=str(part)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point at the copy of the lab that the site has."""
    return markdown.replace(f"](../{LAB}/", "](lab/")


def on_page_content(html: str, **_: Any) -> str:
    """Keep intervals in tables on one line."""

    def unbroken(cell: re.Match[str]) -> str:
        return re.sub(r"(\[[-+.,\d]+,) ([-+.,\d]+\])", r"\1&nbsp;\2", cell[0])

    return re.sub(r"<td.*?</td>", unbroken, html, flags=re.DOTALL)


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def commands() -> str:
    """Write the reference of the command line from its own help texts."""
    from bsrs.cli import commands as table

    text = ["# Commands", "", "```text", printed("--help"), "```", ""]
    for words in table():
        text += [f"## bsrs {' '.join(words)}", "", "```text", printed(*words, "--help"), "```", ""]
    return "\n".join(text)


def printed(*words: str) -> str:
    """Return what a command prints, 100 characters wide and without colours."""
    from bsrs.cli import main

    out = io.StringIO()
    os.environ.update(COLUMNS="100", NO_COLOR="1", TERM="dumb")
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(list(words))
    return out.getvalue().rstrip()


def presets() -> str:
    """Write one table of settings for each algorithm, with a column for each preset."""
    from bsrs.config.algorithms import algorithms

    text = [
        "# Presets",
        "",
        "`bsrs presets` lists them; `bsrs presets td3 pendulum` prints one. Empty cells are defaults.",
        "",
    ]
    for row in algorithms():
        if not (presets := row.presets):
            continue
        names = list(presets)
        fields = dict.fromkeys(field for values in presets.values() for field in values)
        text += [f"## {row.name}", "", f"| setting | {' | '.join(f'`{name}`' for name in names)} |"]
        text += [f"|---|{'---|' * len(names)}"]
        for field in fields:
            text.append(f"| `{field}` | {' | '.join(str(presets[name].get(field, '')) for name in names)} |")
        text.append("")
    return "\n".join(text)
