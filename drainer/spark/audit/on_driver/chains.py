"""Chains on the driver: the steps of rows in their order, each beside the one before it.

In      steps of rows, spans of lineages, definitions
Out     counts of steps by lineage; findings of `chain_check`; the steps that belong to tables at a timestamp
Holds   as Spark does it in `on_executors.chains`: a step that is there twice counts once
Tests   tests/spark/audit/test_runners_agree.py
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter

from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks import chain_check
from drainer.spark.audit.checks.chain_check import Chains, Suspect
from drainer.spark.audit.checks.findings import Findings, in_order
from drainer.spark.audit.checks.lineage_summary import StepGroup
from drainer.spark.audit.rows.lineage import Name, Span, lower
from drainer.spark.audit.rows.row_steps import RowStep
from tidb_binlog import tso
from tidb_binlog.tso import Ts

Followed = tuple[int, RowStep]
"""A step with the number of its lineage."""


class LineageOf:
    """Which lineage a row belongs to, by the name in its change; of names without spans each has its own, a
    negative one."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans: dict[Name, list[Span]] = {}
        for span in spans:
            self._spans.setdefault(span.name, []).append(span)
        self._unnamed: dict[Name, int] = {}
        self._known: dict[Name, tuple[Sequence[int], Sequence[int], int]] = {}

    def at(self, name: Name, commit_ts: Ts) -> int:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._find(lower(name))
        ends, lineages, unnamed = found
        # A span has its last timestamp, and not its first.
        place = bisect_left(ends, commit_ts)
        return lineages[place] if place < len(ends) else unnamed

    def _find(self, name: Name) -> tuple[Sequence[int], Sequence[int], int]:
        """They follow each other without gaps."""
        spans = self._spans.get(name, ())
        unnamed = self._unnamed.setdefault(name, -1 - len(self._unnamed))
        return [one.last_ts for one in spans], [one.lineage for one in spans], unnamed


def follow(steps: Iterable[RowStep], spans: Iterable[Span]) -> list[Followed]:
    """All steps in the order of the cluster."""
    at = LineageOf(spans).at
    in_turn = sorted(steps, key=itemgetter(0, 1))  # by commit_ts and order: almost all are
    return [(at((step.schema, step.table), step.commit_ts), step) for step in in_turn]


def groups(steps: Iterable[Followed], until_ts: Ts, bucket_s: int) -> Iterator[StepGroup]:
    """Counts of steps."""
    found: dict[tuple[int, str, str, int, int, int, bool], list[int]] = {}
    last_ts, bucket, is_until = -1, 0, False
    for lineage, step in steps:
        commit_ts = step.commit_ts
        if commit_ts != last_ts:
            last_ts, is_until = commit_ts, commit_ts <= until_ts
            bucket = math.floor((commit_ts >> tso.LOGICAL_BITS) / 1000 / bucket_s) * bucket_s
        key = (lineage, step.schema, step.table, step.definition, step.key_id, bucket, is_until)
        count = found.get(key)
        if count is None:
            count = found[key] = [0, 0]
        count[0] += step.part == 0
        count[1] = commit_ts  # they come in order
    for key, (changes, newest_ts) in found.items():
        yield StepGroup(*key, changes, newest_ts)


def check(
    steps: Iterable[Followed], definitions: Definitions, born: frozenset[int], rekeyed: Collection[int]
) -> Chains:
    """`rekeyed`: lineages in which the key changed: its rows begin anew."""
    suspects: list[Suspect] = []
    last: dict[tuple[int, int, bytes], RowStep] = {}
    strict = born.difference(rekeyed)
    total = 0
    for lineage, step in steps:
        key = step.key
        if key is None:
            continue
        total += 1
        row = (lineage, step.key_id, key)
        left = last.get(row)
        last[row] = step
        before, definition = step.before, step.definition
        if left is None:
            if before is not None and lineage in strict:
                suspects.append(_suspect(step, None, definition))
        elif before == left.after and (before is None or definition == left.definition):
            continue
        elif left.commit_ts != step.commit_ts or left.order != step.order:
            suspects.append(_suspect(step, left.after, left.definition))
    found = Findings()
    found.extend(in_order(chain_check.findings(suspects, definitions)))
    return Chains(found, total - len(last), len(last), total)


def _suspect(step: RowStep, left: bytes | None, left_definition: int) -> Suspect:
    return Suspect(
        *(step.schema, step.table, step.commit_ts, step.file, step.pos),
        *(step.definition, step.before, step.after, left, left_definition),
    )
