"""The page of values is true: its snippets run, and its table is the one that rows follow."""

from __future__ import annotations

import re
from pathlib import Path

from drainer.changes.values import PYTHON_TYPES
from tidb_binlog.table_info import ColumnKind

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "values.md").read_text()
ROWS = dict(re.findall(r"^\| ([A-Z][^|]*?) \| `([\w.]+)`", PAGE, re.M))
KINDS = {
    ColumnKind.SIGNED: "TINYINT to BIGINT, signed and unsigned",
    ColumnKind.UNSIGNED: "TINYINT to BIGINT, signed and unsigned",
    ColumnKind.TEXT: "CHAR, VARCHAR, TEXT",
    ColumnKind.BINARY: "BINARY, VARBINARY, BLOB",
}


def test_its_snippets_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "values.md", "exec"), names)


def test_its_table_has_the_class_of_every_kind_of_column() -> None:
    for kind, python_type in PYTHON_TYPES.items():
        shown = ROWS[KINDS.get(kind, kind.name)]
        module, _, name = shown.rpartition(".")
        assert name == python_type.__name__, kind
        assert not module or module == "drainer" or module == python_type.__module__
    assert ROWS["NULL"] == "None"
    named = {KINDS.get(kind, kind.name) for kind in PYTHON_TYPES}
    assert set(ROWS) == named | {"NULL"}
