"""Pages of the site that live elsewhere in the repository: the results and the changelog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: Any) -> Files:
    """Add results/README.md with its pictures, and CHANGELOG.md, with links as they are from inside the site."""
    results = (ROOT / "results" / "README.md").read_text(encoding="utf-8").replace("](../docs/", "](../")
    files.append(File.generated(config, "results/index.md", content=results))
    for picture in sorted((ROOT / "results").glob("*/*.png")):
        where = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, where, abs_src_path=str(picture)))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "changelog.md", content=changelog))
    return files
