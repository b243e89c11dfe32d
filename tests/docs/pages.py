"""Pages of the documentation, as their tests read them."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from tests.architecture.source import ROOT
from tests.waiting import PATIENCE_S

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))


@dataclass(frozen=True)
class Page:
    """A page by its path in the tree."""

    path: str

    @property
    def text(self) -> str:
        return (ROOT / self.path).read_text(encoding="utf-8")

    def blocks(self, language: str) -> list[str]:
        """Code of one language, without the indentation of a list."""
        blocks = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", self.text, re.M | re.S)
        return [re.sub(rf"^{indent}", "", block, flags=re.M) for indent, block in blocks]

    def commands(self) -> list[str]:
        """Lines for a shell."""
        return [line for block in self.blocks("sh") for line in block.splitlines()]


README = Page("README.md")
QUICK_START = Page("docs/quick-start.md")
TIDB = Page("docs/tidb.md")
OPERATE = Page("docs/operate.md")
PUMP = Page("docs/pump.md")
DRAINER = Page("docs/drainer.md")
UPGRADE = Page("docs/upgrade.md")
SECURITY = Page("docs/security.md")
TWO_WAY = Page("docs/two-way.md")
PUBLISH = Page("docs/publish.md")
RECORDINGS = Page("docs/recordings.md")
SPARK = Page("docs/spark.md")
COMPARISON = Page("docs/comparison.md")
EXIT_CODES = Page("docs/exit-codes.md")


def run(
    *arguments: str, codes: tuple[int, ...] = (0,), deadline_s: float = PATIENCE_S, **environment: str
) -> str:
    """What a command of a page prints, run in the checkout."""
    result = subprocess.run(
        arguments,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    assert result.returncode in codes, result.stdout + result.stderr
    return result.stdout
