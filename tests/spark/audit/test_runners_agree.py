"""Audit, runners: what this process finds is what Spark's executors find, findings of every kind included."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StructField, StructType

from drainer.changes import canonical
from drainer.mysql.rows.column_match import Dialect
from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks import comparison, contents, image_rows
from drainer.spark.audit.checks.chain_rule import BROKEN, KEPT, LOST, UNREADABLE
from drainer.spark.audit.checks.comparison import Comparison
from drainer.spark.audit.checks.contents import LastStep
from drainer.spark.audit.checks.lineage_summary import Profiles
from drainer.spark.audit.checks.runner import Beginning, ContentsInput, Pieces
from drainer.spark.audit.on_driver import chains as chains_here
from drainer.spark.audit.on_driver import contents as contents_here
from drainer.spark.audit.on_driver import xxhash64
from drainer.spark.audit.on_executors import chains as chains_there
from drainer.spark.audit.on_executors import contents as contents_there
from drainer.spark.audit.on_executors.frames import STEPS, batched
from drainer.spark.audit.rows.lineage import Lineages, Span
from drainer.spark.audit.rows.row_steps import RowStep
from drainer.txn import TableVersion
from tests.spark.support.audit_world import Walk, walk

SEED = 5
SCENARIOS = ("types", "keys", "charset")
BUCKET_S = 7
CHUNKS = 16
Live = tuple[int, bytes, bytes]


@dataclass(frozen=True)
class History:
    """Steps of recorded scenarios, with faults, in any order."""

    steps: list[RowStep]
    spans: list[Span]
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
    names = sorted({(one.schema.lower(), one.table.lower()) for one in steps} | set(lineages.names))
    spans = lineages.spans(name for number, name in enumerate(names) if number % 3)
    born = frozenset(one.number for one in lineages.lineages if one.born_ts is not None)
    steps = list(faulty(steps, rng))
    rng.shuffle(steps)
    return History(steps, spans, born, lineages, definitions)


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


@pytest.fixture(scope="module")
def frame(spark: SparkSession, made: History) -> Any:
    return framed(spark, made, made.steps).persist()


def framed(spark: SparkSession, made: History, steps: Iterable[RowStep]) -> Any:
    table = pa.Table.from_batches(batched(steps, STEPS))
    return chains_there.with_lineage(spark, spark.createDataFrame(table), made.spans, made.born)


def of_names(profiles: Profiles) -> list[tuple[Any, ...]]:
    """Numbers of lineages that nobody defined are anybody's."""
    return sorted(
        (max(number, -1), one.name, one.last_ts, one.last_definition, sorted(one.definitions), one.key_ids)
        for found in (profiles.all, profiles.until, profiles.after)
        for number, one in found.items()
    )


def test_profiles_and_chains(made: History, frame: Any) -> None:
    steps = chains_here.follow(made.steps, made.spans)
    until_ts = steps[len(steps) // 2][1].commit_ts
    here = Profiles.of(until_ts, chains_here.groups(steps, until_ts, BUCKET_S))
    there = Profiles.of(until_ts, chains_there.groups(frame, until_ts, BUCKET_S))
    assert of_names(here) == of_names(there)
    assert here.changes == there.changes
    rekeyed = [number for number, one in here.all.items() if len(one.key_ids) > 1 and number >= 0][:2]
    found = chains_here.check(steps, made.definitions, made.born, rekeyed)
    assert found == chains_there.check(frame, made.definitions, rekeyed)
    assert {kind for kind, _ in found.findings.counts} == {LOST, KEPT, BROKEN, UNREADABLE}
    assert found.links > 500


# -- contents -------------------------------------------------------------------------------------------


def comparisons_of(made: History, steps: Iterable[chains_here.Followed], rng: random.Random) -> Any:
    """Every table whose rows are of one definition, some of them in part, some in latin1."""
    versions: dict[int, set[int]] = {}
    for lineage, step in steps:
        versions.setdefault(lineage, set()).add(step.definition)
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
    there = image_rows.described(version)
    columns = tuple(replace(one, charset=charset) if one.type == "text" else one for one in there.columns)
    return replace(there, columns=columns, dialect=Dialect.MARIADB)


def readable(made: History, steps: Sequence[chains_here.Followed], how: Any) -> list[chains_here.Followed]:
    """An image that cannot be read ends an audit."""
    readers = contents.readers(how, made.definitions)
    found = []
    for lineage, step in steps:
        try:
            list(contents.compared([LastStep(lineage, *last(step))], readers) if lineage in how else ())
        except Exception:
            continue
        found.append((lineage, step))
    return found


def last(step: RowStep) -> tuple[int, bytes | None, bytes | None]:
    return step.definition, step.before, step.after


def reference(
    made: History, steps: Sequence[chains_here.Followed], how: dict[int, Comparison], rng: random.Random
) -> tuple[list[Live], list[contents.Expected]]:
    """What a database holds that is nearly right, and what tables began with."""
    rows: dict[tuple[int, bytes], Live] = {}
    readers = contents.readers(how, made.definitions)
    wanted = (LastStep(lineage, *last(step)) for lineage, step in steps if lineage in how)
    for number, key, row, times, _, _ in contents.compared(wanted, readers):
        if key is not None and row is not None and times > 0:
            rows[number, key] = (number, key, row)
        elif key is not None:
            rows.pop((number, key), None)
    live: list[Live] = []
    begun: list[contents.Expected] = []
    before: dict[int, Live] = {}
    for number, key, row in rows.values():
        fault = rng.random()
        other = before.get(number, (number, key, row))
        before[number] = (number, key, row)
        if fault < 0.05:
            continue
        if fault < 0.1 and how[number].keyed:
            live.append((number, key, other[2]))
        elif fault < 0.15:
            live += [(number, key, row)] * 2
        elif fault < 0.2:
            added = canonical.pack([*canonical.unpack(key)[:-1], b"9"])
            live += [(number, key, row), (number, added, row if how[number].keyed else added)]
        else:
            live.append((number, key, row))
        if rng.random() < 0.5:
            begun.append((number, key, other[2], 1, 0, "0" if rng.random() < 0.2 else None))
    rng.shuffle(live)
    return live, begun


def piece(rows: Sequence[Any]) -> Pieces[Any]:
    return Pieces([rows[::2], rows[1::2]], itertools.chain.from_iterable)


def test_contents(spark: SparkSession, made: History) -> None:
    """Every second table begins with what it held at a time; `test_auditing` has both ways without that."""
    rng = random.Random(SEED)
    steps = chains_here.follow(made.steps, made.spans)
    how = comparisons_of(made, steps, rng)
    steps = readable(made, steps, how)
    live, begun = reference(made, steps, how, rng)
    lineages = frozenset(sorted(how)[::2])
    rows = [one for one in begun if one[0] in lineages]
    beginning = Beginning(steps[len(steps) // 3][1].commit_ts, lineages, piece(rows))
    wanted = ContentsInput(how, steps[-9][1].commit_ts, piece(live), CHUNKS, beginning)
    here = contents_here.check(steps, wanted, made.definitions)
    frame = framed(spark, made, (step for _, step in steps))
    there = contents_there.check(spark, frame, wanted, made.definitions)
    assert here == there
    states = {state for table in here.tables for state in table.states}
    assert states == {"equal", "compared in part", "not in the archive", "differs", "missing", "surplus"}
    assert {one.keyed for one in here.tables} == {False, True}
    assert {kind for kind, _ in here.findings.counts} == {"row differs", "row is missing", "row too many"}


def test_hashes(spark: SparkSession) -> None:
    rng = random.Random(SEED)
    sizes = [*range(70), 95, 96, 97, 128, 500, 4096]
    pairs = [(rng.randbytes(size), rng.randbytes(rng.choice(sizes))) for size in sizes for _ in range(3)]
    schema = StructType([StructField("key", BinaryType()), StructField("row", BinaryType())])
    hashes = f.xxhash64("key").alias("key"), f.xxhash64("key", "row").alias("row")
    found = [tuple(row) for row in spark.createDataFrame(pairs, schema).coalesce(1).select(*hashes).collect()]
    keys, rows = map(list, zip(*pairs, strict=True))
    of_keys, of_rows = xxhash64.of_keys(keys), xxhash64.of_rows(keys, rows)
    assert found == list(zip(of_keys.view("i8").tolist(), of_rows.view("i8").tolist(), strict=True))
