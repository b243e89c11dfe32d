"""Contents, chains: this process finds what Spark's executors find, findings of every kind included."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from drainer.changes import canonical
from drainer.mysql.rows.dialect import Dialect
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks import chain_rule, comparison, contents, reference_side
from drainer.spark.audit.checks.chain_rule import BROKEN, KEPT, LOST, UNREADABLE, ChainCheck
from drainer.spark.audit.checks.comparison import Comparison, RowReader
from drainer.spark.audit.checks.contents import Beginning, ContentsInput, SideRow
from drainer.spark.audit.checks.lineage_summary import Profiles, StepCounts
from drainer.spark.audit.rows.lineage import LineageOf, Lineages, lower
from drainer.spark.audit.rows.row_steps import COLUMNS, SORTED, RowStep
from drainer.spark.engine import Engine, Executors, Here, Rows
from drainer.txn import TableVersion
from tests.spark.support.audit_world import Walk, walk

SEED = 5
SCENARIOS = ("types", "keys", "charset")
BUCKET_S = 7
CHUNKS = 16


@dataclass(frozen=True)
class History:
    """Steps of recorded scenarios, with faults, in any order."""

    steps: list[RowStep]
    born: frozenset[int]
    lineages: Lineages
    definitions: Definitions


def history(rng: random.Random) -> History:
    definitions = Definitions()
    walks = [walk(name) for name in SCENARIOS]
    steps = [step for one in walks for step in renumbered(one, definitions)]
    statements = sorted(
        (one for each in walks for one in each.statements), key=lambda one: (one.commit_ts, one.query)
    )
    lineages = Lineages.of(statements)
    # Of every third name there are no spans: its rows are those of a table that nobody defined.
    names = sorted(
        {lower(definitions.version(one.definition).downstream) for one in steps} | set(lineages.names)
    )
    spans = lineages.spans(name for number, name in enumerate(names) if number % 3)
    born = frozenset(one.number for one in lineages.lineages if one.born_ts is not None)
    at = LineageOf(spans).at
    steps = [
        step._replace(lineage=at(definitions.version(step.definition).downstream, step.commit_ts))
        for step in faulty(steps, rng)
    ]
    rng.shuffle(steps)
    return History(steps, born, lineages, definitions)


def renumbered(one: Walk, definitions: Definitions) -> Iterator[RowStep]:
    for version in one.versions.values():
        definitions.add(0, *version.downstream, version)
    for step in one.steps:
        yield step._replace(definition=definitions.number_of(one.versions[step.definition]))


def faulty(steps: Sequence[RowStep], rng: random.Random) -> Iterator[RowStep]:
    others: dict[int, bytes] = {}
    for step in steps:
        fault = rng.random() * 5  # fewer than are listed in all
        image = step.after or step.before
        assert image is not None
        other = others.setdefault(step.definition, image)
        if rng.random() < 0.3:
            others[step.definition] = image
        if fault < 0.04:
            continue  # lost
        if fault < 0.08 and step.after is not None:
            yield step._replace(after=other)
        elif fault < 0.11 and step.before is not None:
            yield step._replace(before=step.before[: len(step.before) * 2 // 3])
        elif fault < 0.14:
            yield from (step, step)
        elif fault < 0.17:
            yield from (step, step._replace(commit_ts=step.commit_ts + 1))
        elif fault < 0.19:
            yield step._replace(key_id=step.key_id + 1)
        else:
            yield step


@pytest.fixture(scope="module")
def made() -> History:
    return history(random.Random(SEED))


def steps_of(engine: Engine, made: History, steps: Sequence[RowStep]) -> Rows:
    return engine.over([steps[::2], steps[1::2]], itertools.chain.from_iterable, COLUMNS)


def test_profiles_and_chains(spark: SparkSession, made: History) -> None:
    until_ts = sorted(step.commit_ts for step in made.steps)[len(made.steps) // 2]
    found = []
    for engine in (Here(), Executors(spark)):
        steps = steps_of(engine, made, made.steps)
        profiles = Profiles.of(until_ts, steps.gather(StepCounts(made.definitions, until_ts, BUCKET_S)))
        rekeyed = [number for number, one in profiles.all.items() if len(one.key_ids) > 1 and number >= 0][:2]
        check = ChainCheck(made.definitions, made.born.difference(rekeyed))
        chains = chain_rule.together(steps.together(*SORTED).gather(check))
        found.append((profiles.all, profiles.until, profiles.after, profiles.changes, chains))
    assert found[0] == found[1]
    *_, chains = found[0]
    assert {kind for kind, _ in chains.findings.counts} == {LOST, KEPT, BROKEN, UNREADABLE}
    assert chains.links > 500


# -- contents -------------------------------------------------------------------------------------------


def comparisons_of(made: History, steps: Iterable[RowStep], rng: random.Random) -> Any:
    """Every table whose rows are of one definition, some of them in part, some in latin1."""
    versions: dict[int, set[int]] = {}
    for step in steps:
        versions.setdefault(step.lineage, set()).add(step.definition)
    found = {}
    for lineage, numbers in versions.items():
        if lineage < 0 or len(numbers) > 1:
            continue
        version = made.definitions.version(min(numbers))
        there = described(version, rng.choice(("utf8mb4", "latin1", "utf8mb3")))
        how, _ = comparison.plan(lineage, version, there, whole=rng.random() < 0.7)
        if how is not None:
            found[lineage] = how
    return found


def described(version: TableVersion, charset: str) -> Any:
    there = reference_side.described(version)
    columns = tuple(replace(one, charset=charset) if one.type == "text" else one for one in there.columns)
    return replace(there, columns=columns, dialect=Dialect.MARIADB)


def readable(made: History, steps: Sequence[RowStep], how: Any) -> list[RowStep]:
    """An image that cannot be read ends an audit."""
    readers = {number: RowReader(one, made.definitions.version) for number, one in how.items()}
    found = []
    for step in steps:
        try:
            list(contents.archived(step, readers[step.lineage]) if step.lineage in how else ())
        except Exception:
            continue
        found.append(step)
    return found


def reference(
    made: History, steps: Sequence[RowStep], how: dict[int, Comparison], rng: random.Random
) -> tuple[list[SideRow], list[SideRow]]:
    """What a database holds that is nearly right, and what tables began with."""
    rows: dict[tuple[int, bytes], tuple[int, bytes, bytes]] = {}
    readers = {number: RowReader(one, made.definitions.version) for number, one in how.items()}
    archived = (
        one for step in steps if step.lineage in how for one in contents.archived(step, readers[step.lineage])
    )
    for number, key, _, _, row, times, _ in archived:
        if key is not None and row is not None and times > 0:
            rows[number, key] = (number, key, row)
        elif key is not None:
            rows.pop((number, key), None)
    live: list[tuple[int, bytes, bytes]] = []
    begun: list[SideRow] = []
    before: dict[int, bytes] = {}
    for number, key, row in rows.values():
        fault = rng.random()
        other = before.get(number, row)
        before[number] = row
        if fault < 0.05:
            continue
        if fault < 0.1 and how[number].keyed:
            live.append((number, key, other))
        elif fault < 0.15:
            live += [(number, key, row)] * 2
        elif fault < 0.2:
            added = canonical.pack([*canonical.unpack(key)[:-1], b"9"])
            live += [(number, key, row), (number, added, row if how[number].keyed else added)]
        else:
            live.append((number, key, row))
        if rng.random() < 0.5:
            begun.append(SideRow(number, key, 0, 0, other, 1, "0" if rng.random() < 0.2 else None))
    rng.shuffle(live)
    return [SideRow(number, key, 1, 0, row) for number, key, row in live], begun


def piece(engine: Engine, rows: Sequence[Any]) -> Rows:
    return engine.over([rows[::2], rows[1::2]], itertools.chain.from_iterable, contents.COLUMNS)


def test_contents(spark: SparkSession, made: History) -> None:
    """Every second table begins with what it held at a time; `test_auditing` has both ways without that."""
    rng = random.Random(SEED)
    steps = sorted(made.steps, key=lambda step: (step.commit_ts, step.order))
    how = comparisons_of(made, steps, rng)
    steps = readable(made, steps, how)
    live, begun = reference(made, steps, how, rng)
    lineages = frozenset(sorted(how)[::2])
    rows = [one for one in begun if one.number in lineages]
    until_ts, at_ts = steps[len(steps) // 3].commit_ts, steps[-9].commit_ts
    found = []
    for engine in (Here(), Executors(spark)):
        beginning = Beginning(until_ts, lineages, piece(engine, rows))
        given = ContentsInput(how, at_ts, piece(engine, live), CHUNKS, beginning)
        in_order = steps_of(engine, made, steps).together(*SORTED)
        found.append(contents.check(in_order, given, made.definitions))
    here, there = found
    assert here == there
    states = {state for table in here.tables for state in table.states}
    assert states == {"equal", "compared in part", "not in the archive", "differs", "missing", "surplus"}
    assert {one.keyed for one in here.tables} == {False, True}
    assert {kind for kind, _ in here.findings.counts} == {"row differs", "row is missing", "row too many"}
