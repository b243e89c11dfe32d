"""Runner: where the checks of an audit run: here (`on_driver`), or in Spark's tasks (`on_executors`).

In     slices of an archive, tables to compare, rows of a database or an image by pieces
Out    profiles of lineages, chains, contents
Holds  both runners find the same in the same input; findings are in the order of the archive
Tests  tests/spark/audit/test_runners_agree.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from drainer.reading.archive.files.segments import Slice
from drainer.spark.audit.checks.chain_check import Chains
from drainer.spark.audit.checks.comparison import Comparison
from drainer.spark.audit.checks.contents import Contents
from drainer.spark.audit.checks.lineage_summary import Profiles
from drainer.spark.audit.checks.tasks import SliceWork, TaskInput
from drainer.spark.audit.rows.lineage import Span
from tidb_binlog.tso import Ts

T = TypeVar("T")


@dataclass(frozen=True)
class Pieces(Generic[T]):
    """Rows that are read apart. `work`: those of some of the items."""

    items: Sequence[T]
    work: Callable[[Iterable[T]], Iterator[tuple[Any, ...]]]


@dataclass(frozen=True)
class Beginning:
    """What tables of these lineages held at a timestamp: rows as `contents.expected` has them."""

    until_ts: Ts
    lineages: frozenset[int]
    rows: Pieces[Any]


@dataclass(frozen=True)
class ContentsInput:
    """`comparisons`: by lineage. `live`: (number of the comparison, key, row) of the reference side.
    `chunks`: of keys, for checksums."""

    comparisons: Mapping[int, Comparison]
    at_ts: Ts
    live: Pieces[Any]
    chunks: int
    beginning: Beginning | None = None


class Runner(Protocol):
    """The calls come in this order."""

    def texts(self, slices: Sequence[Slice], work: SliceWork) -> list[str]:
        """What `work` says of the slices."""
        ...

    def follow(
        self,
        archive: TaskInput,
        slices: Sequence[Slice],
        spans: Sequence[Span],
        born: frozenset[int],
        until_ts: Ts,
        bucket_s: int,
    ) -> Profiles:
        """Read the steps of all rows, each with its lineage by `spans`; of another name it has one of its
        own, a negative one. `born`: lineages that were empty when they began."""
        ...

    def chains(self, rekeyed: Sequence[int]) -> Chains:
        """Every step beside the one before it. `rekeyed`: lineages in which the key changed: their rows
        begin anew."""
        ...

    def contents(self, wanted: ContentsInput) -> Contents:
        """What the steps say that tables hold beside what the reference side holds."""
        ...
