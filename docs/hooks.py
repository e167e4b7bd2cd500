"""Pages of the site that live elsewhere in the repository: the results, the changelog and the lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
LAB = "src/bsrs/data/lab"


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of results/ with their pictures, CHANGELOG.md and the lab, with links as from inside the site."""
    for page in sorted((ROOT / "results").rglob("README.md")):
        text = page.read_text(encoding="utf-8").replace("../docs/", "../").replace("/README.md)", "/index.md)")
        where = page.with_name("index.md").relative_to(ROOT).as_posix()
        files.append(File.generated(config, where, content=text))
    for picture in sorted((ROOT / "results").glob("*/*.png")):
        where = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, where, abs_src_path=str(picture)))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "changelog.md", content=changelog))
    for part in sorted((ROOT / LAB).iterdir()):
        files.append(File.generated(config, f"lab/{part.name}", abs_src_path=str(part)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The lab lies beside its page in the site."""
    return markdown.replace(f"](../{LAB}/", "](lab/")
