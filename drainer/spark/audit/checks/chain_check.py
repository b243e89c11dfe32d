"""Chain check: what is wrong with steps of rows that do not follow from the step before them.

In      suspects: steps whose image before is not, byte for byte, what the step before left
Out     findings of `chain_rule`, with the row's key in words; how many links and beginnings there were
Why     nearly all links are equal bytes under one definition: the runners compare these, and only the rest is
        decoded
Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from drainer.changes import canonical
from drainer.mysql.literal.plan import compile_sql
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks.chain_rule import Link, finding, judge
from drainer.spark.audit.checks.findings import Finding, Findings
from drainer.spark.audit.rows.projection import Projections
from drainer.txn import TableVersion
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class Chains:
    """Outcome of the check."""

    findings: Findings
    links: int
    beginnings: int
    steps: int


class Suspect(NamedTuple):
    """A step, and what the one before it left: the row's image and its definition."""

    schema: str
    table: str
    commit_ts: Ts
    file: str
    pos: int
    definition: int
    before: bytes | None
    after: bytes | None
    left: bytes | None
    left_definition: int


def findings(suspects: Iterable[Suspect], definitions: Definitions) -> Iterator[Finding]:
    projections = Projections()
    for one in suspects:
        link = Link(True, one.before, one.definition, one.left, one.left_definition)
        wrong = judge(link, definitions.version, projections)
        if wrong is None:
            continue
        image = one.before if one.before is not None else one.after
        assert image is not None
        key = key_text(definitions.version(one.definition), image, projections)
        yield finding(wrong, f"{one.schema}.{one.table}", key, one.commit_ts, one.file, one.pos)


def key_text(version: TableVersion, image: bytes, projections: Projections) -> str:
    """The key of a row for people: `id=5, part=3`."""
    projection = projections.of(version, version)
    if projection is None:
        return ""
    try:
        values = projection.values(image)
        ids = [column.id for column in compile_sql(version.info).key_columns]
    except RowError:
        return ""
    by_id = {
        column.id: (column.name, value) for column, value in zip(projection.columns, values, strict=True)
    }
    return ", ".join(f"{by_id[one][0]}={canonical.show(by_id[one][1])}" for one in ids if one in by_id)
