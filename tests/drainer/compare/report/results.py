"""Results of comparisons: one of each kind of table and row."""

from __future__ import annotations

from dataclasses import replace

from drainer.compare.verify.result import (
    ComparedColumn,
    How,
    Kind,
    RowDifference,
    State,
    TableResult,
    Verification,
)

TS = 1_700_000_000_000 << 18
ID = ComparedColumn("id", is_key=True, type="int")
TEXT = ComparedColumn("note", type="varchar")
JSON = ComparedColumn("body", How.VALUES, "JSON is compared by meaning", type="json")
LEFT_OUT = ComparedColumn("secret", How.NOT_COMPARED, "left out by a column rule")

ITEM = TableResult(
    (("shop", "item"), ("shop2", "item")),
    ("all", "item"),
    State.DIFFERS,
    columns=(ID, LEFT_OUT, TEXT, JSON),
    chunks=3,
    rows=1_000,
    downstream_rows=999,
    missing=2,
    extra=1,
    changed=1,
    differences=(
        RowDifference(
            (b"7",),
            Kind.CHANGED,
            (b"7", b"''", b"'{}'"),
            (b"7", b"NULL", b"'{}'"),
            ("note",),
            commit_ts=TS - (1000 << 18),
        ),
        RowDifference((b"8",), Kind.MISSING, (b"8", b"'<b>" + b"x" * 300 + b"'", b"NULL"), None),
        RowDifference((b"-1",), Kind.EXTRA, None, (b"-1", b"'\xff'", b"NULL")),
    ),
    seconds=1.5,
)
LOG = TableResult(
    (("shop", "log"),),
    ("shop", "log"),
    State.DIFFERS,
    columns=(ComparedColumn("line", How.VALUES, "", type="text"),),
    how=How.VALUES,
    extra=2,
    differences=(RowDifference((), Kind.EXTRA, None, (b"'x'",), copies=(1, 3)),),
)
EQUAL = TableResult((("shop", "ok"),), ("shop", "ok"), State.EQUAL, columns=(ID,), chunks=1, rows=5)
WAITING = TableResult((("shop", "w"),), ("shop", "w"), State.NOT_COMPARABLE, "it waits: a DDL was refused")

FAULTY = Verification(
    "root@up:4000",
    "app@down:3306",
    TS,
    0,
    1_700_000_001.0,
    1_700_000_013.0,
    (ITEM, LOG, EQUAL, WAITING),
    held_ms=3.25,
    looked_again=2,
    notes=("users and grants are not compared",),
)
SOUND = replace(FAULTY, tables=(EQUAL,), notes=(), looked_again=0)
