"""Find phrases that read as translated, in pages, help texts and messages: `python docs/check_words.py`.

Markdown is checked outside code. In Python files, strings and docstrings are checked: they are what users see.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PHRASES = {
    r"\ball told\b|\bis told\b|\bare told\b": "reported, detected",
    r"\bsays so\b|\bsay so\b": "reports it, prints an error",
    r"\bin a sentence\b|\bin one sentence\b": "with an error",
    r"\banew\b|\bafresh\b": "again, rebuilt",
    r"\bbeside\b": "next to, compared with",
    r"\bbut for\b": "except for",
    r"\bby way of\b": "through",
    r"\bno say in\b": "held-out",
    r"\bsomebody\b|\bone's own\b": "you, your, someone",
    r"\bclear of\b|\bnot clear\b": "clearly better than, inconclusive",
    r"\bgive (?:it|them|the \w+) again\b": "rerun",
    r"\bat hand\b|\bto be had\b": "available",
    r"\bwhat else the field\b": "related methods",
    r"\bbit for bit\b": "exactly",
    r"\bthe last word\b|\bhas done its duty\b": "what the code does",
    r"\b\d+ %(?!\})": "no space before the percent sign",
    r"\bplain (?:DQN|TD3|SAC|agent|run|learning)\b": "the baseline, or without shaping",
}
CHECKED = ("README.md", "CONTRIBUTING.md", "docs/*.md", "results/*.md", "results/*/*.md", "examples/*.md")
CHECKED += ("src/bsrs/report/assets/page.html.j2", "src/bsrs/data/lab/lab.html", "src/bsrs/report/assets/captions.json")
CODE = ("src/**/*.py", "experiments/*.py", "benchmarks/*.py")


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside code."""
    text = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for number, line in enumerate(text.splitlines(), 1):
        yield number, re.sub(r"`[^`]*`", "", line)


def strings(module: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of every string in a Python file, with their line numbers."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, re.sub(r"`[^`]*`", "", line)


def findings() -> Iterator[str]:
    """Yield one line for each phrase found."""
    pages = [(page, prose(page)) for pattern in CHECKED for page in sorted(ROOT.glob(pattern))]
    modules = [(module, strings(module)) for pattern in CODE for module in sorted(ROOT.glob(pattern))]
    for path, lines in pages + modules:
        for number, line in lines:
            for pattern, instead in PHRASES.items():
                if found := re.search(pattern, line, re.IGNORECASE):
                    yield f"{path.relative_to(ROOT)}:{number}: {found[0]!r}; write: {instead}"


if __name__ == "__main__":
    found = list(findings())
    print("\n".join(found) or "no phrase to avoid")
    sys.exit(bool(found))
