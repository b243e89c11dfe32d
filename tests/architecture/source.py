"""The project's own source files, parsed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "tidb_binlog": ROOT / "common" / "tidb_binlog",
    "pump": ROOT / "pump",
    "pumpclient": ROOT / "pumpclient",
    "drainer": ROOT / "drainer",
    "binlogctl": ROOT / "deploy" / "binlogctl",
    "binlog_playground": ROOT / "deploy" / "binlog_playground",
    "binlog_testing": ROOT / "deploy" / "binlog_testing",
}
"""What the wheel has, and where it is."""


@dataclass(frozen=True)
class Module:
    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree."""
        return list(ast.walk(self.tree))

    @property
    def room(self) -> str:
        """The folder in `tests`."""
        return self.path.relative_to(ROOT).parts[1]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    def imports(self) -> Iterator[str]:
        """Full dotted names of everything imported, also inside functions, and of the packages around it."""
        for name in self.named:
            yield name.rpartition(".")[0]
            yield name

    @cached_property
    def named(self) -> list[str]:
        """Full dotted names of what is imported, also inside functions."""
        names = []
        for found in self.nodes:
            if isinstance(found, ast.Import):
                names += [alias.name for alias in found.names]
            elif isinstance(found, ast.ImportFrom) and found.module and not found.level:
                names += [f"{found.module}.{alias.name}" for alias in found.names]
        return names


@cache
def modules() -> tuple[Module, ...]:
    return tuple(module for directory in PACKAGES.values() for module in _of(directory))


@cache
def modules_of_tests() -> tuple[Module, ...]:
    return tuple(_of(ROOT / "tests"))


def _of(directory: Path) -> Iterator[Module]:
    for path in sorted(directory.rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        parts = path.relative_to(directory.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield Module(name, path)
