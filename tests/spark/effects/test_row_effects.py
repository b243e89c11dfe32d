"""Effects found for all rows of a table at once are those that are found row by row."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from drainer.places.place import Place
from drainer.reading.archive.columns.binlog_arrays import BinlogRows, binlog_rows
from drainer.reading.archive.decode import pump_range
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.images import Images
from drainer.reading.archive.decode.pump_range import PumpSlice, StreamState, packed
from drainer.reading.archive.decode.records import Changes
from drainer.reading.archive.files.selection import Selection
from drainer.spark.effects.batches import batches
from drainer.spark.effects.fold import Reading
from drainer.spark.effects.merge import merged
from drainer.spark.effects.operations import Operations
from drainer.spark.effects.row_effects import RowEffects, only
from drainer.stream.pull.merged import Merged, Spilled
from drainer.stream.pull.range_reader import PumpSet
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.row_filter import RowFilter, row_events
from drainer.stream.translate.translator import Translator
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from pumpclient.publish.transaction import Kind
from tests.drainer.support import recorded
from tests.drainer.support.apply_life import column
from tests.drainer.support.payloads import payload_of
from tests.drainer.support.relay_world import items
from tests.rig.workload.encoding import RowImages
from tests.rig.workload.model import Model
from tests.rig.workload.tables import standing_tables
from tests.rig.workload.workload import Ending, Workload
from tests.spark.support.number_keys import history, table
from tidb_binlog import binlog
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import LONGLONG, TableInfo
from tidb_binlog.wire import binlog_pb2

BUCKETS = 16
KINDS = {Kind.INSERT: INSERT, Kind.UPDATE: UPDATE, Kind.DELETE: DELETE}


def row_by_row(stream: Iterable[Transaction], known: Definitions) -> list[Any]:
    operations, images = Operations(known.number_of), Images()
    for item in stream:
        for first_seq, rows in images.runs(item, known):
            operations.add(Changes(item.commit_ts, 0, "", 0, first_seq, rows))
    return list(batches(operations.take(), operations.digits, BUCKETS))


def at_once(stream: list[Transaction], known: Definitions) -> tuple[list[Any], list[Transaction]]:
    found, left = RowEffects(known, known.number_of, frozenset(), BUCKETS).read(stream)
    return found, list(only(left, stream))


def net(some: list[Any]) -> list[dict[str, Any]]:
    """One row a key, in the order in which it is written."""
    rows = pa.Table.from_batches(some).sort_by("place").combine_chunks().to_batches() if some else []
    return [row for batch in merged(rows) for row in batch.to_pylist()]


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_of_recorded_streams(scenario: str) -> None:
    known = Definitions()
    for is_rows, some in itertools.groupby(items(scenario), lambda item: isinstance(item, Transaction)):
        if is_rows:
            stream = [item for item in some if isinstance(item, Transaction)]
            found, left = at_once(stream, known)
            assert net(found + row_by_row(left, known)) == net(row_by_row(stream, known))


def test_most_recorded_types_are_found_at_once() -> None:
    """What is left has JSON, or no key that is one number."""
    stream = [item for item in items("types") if isinstance(item, Transaction)]
    _, left = at_once(stream, Definitions())
    rows, rest = ({e.table.name for item in some for e in item.tables} for some in (stream, left))
    assert len(rest) < len(rows) / 2


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_of_random_histories(seed: int, unsigned: bool) -> None:
    """Rows of another table lie between, so the places of rows in their transactions matter."""
    first, second = table(unsigned), table(not unsigned)
    second = replace(second, info=replace(second.info, id=8, name="u"), name="u")
    both = zip(
        history(first, random.Random(seed), unsigned),
        history(second, random.Random(seed + 100), not unsigned),
        strict=True,
    )
    stream = []
    for one, two in both:
        (ours,), (theirs,) = one.tables, two.tables
        after = TableEvents(theirs.table, theirs.kinds, theirs.rows, len(ours.rows) + 3)
        stream.append(replace(one, tables=(ours, after)))
    known = Definitions()
    found, left = at_once(stream, known)
    assert not left
    assert net(found) == net(row_by_row(stream, known))


def single(version: TableVersion, kind: int, *rows: bytes) -> list[Transaction]:
    return [Transaction(0, 1 << 30, (TableEvents(version, [kind] * len(rows), list(rows), 0),), 0)]


def test_a_key_that_moves_is_taken_row_by_row() -> None:
    version = table(unsigned=False)
    row = RowEncoder(version.info).update({"v": "a", "id": 1, "n": 1}, {"v": "a", "id": 2, "n": 1})
    assert at_once(single(version, UPDATE, row), Definitions())[1]


def test_odd_rows_are_taken_row_by_row() -> None:
    """Cut off anywhere, or with any byte changed: then the readers of rows say what it is."""
    version = table(unsigned=False)
    encoder, known = RowEncoder(version.info), Definitions()
    right = encoder.insert({"v": "abc", "id": 300, "n": 1 << 62})
    cut = [right[:end] for end in range(len(right))]
    changed = [
        right[:place] + bytes([byte]) + right[place + 1 :]
        for place in range(len(right))
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF)
    ]
    taken = 0
    for odd in cut + changed:
        stream = single(version, INSERT, odd)
        found, left = at_once(stream, known)
        if not left:
            taken += 1
            assert net(found) == net(row_by_row(stream, known)), odd
    assert 0 < taken < len(cut + changed) / 2


def test_of_tables_whose_former_images_are_needed_rows_are_taken_one_by_one() -> None:
    version = table(unsigned=False)
    known = Definitions()
    stream = single(version, INSERT, RowEncoder(version.info).insert({"v": "a", "id": 1, "n": 1}))
    (batch,), _ = at_once(stream, known)
    before_of = frozenset(batch.column("table").to_pylist())
    assert RowEffects(known, known.number_of, before_of, BUCKETS).read(stream) == ([], {version})


def random_stream(seed: int, count: int) -> list[Transaction]:
    """What random sessions do to tables with keys of every kind, and without."""
    model, encoded = Model("d"), RowImages()
    for each in standing_tables("d", itertools.count(1)):
        model.add(each)
    workload = Workload(random.Random(seed), model)
    versions: dict[int, TableVersion] = {}
    stream = []
    for number in range(1, count + 1):
        plan = workload.next(Ending.COMMIT)
        assert plan is not None
        events: dict[int, tuple[list[int], list[bytes]]] = {}
        for change in plan.transaction.changes:
            info = TableInfo.from_json(change.table.info())
            versions.setdefault(info.id, TableVersion(info, "d", info.name, 1))
        for of, kind, row in encoded.encode(plan.transaction.changes):
            kinds, rows = events.setdefault(of, ([], []))
            kinds.append(KINDS[kind])
            rows.append(row)
        model.end(plan.transaction, committed=True)
        tables, first = [], 0
        for of, (kinds, rows) in events.items():
            tables.append(TableEvents(versions[of], kinds, rows, first))
            first += len(rows)
        stream.append(Transaction(0, number << 20, tuple(tables), 0))
    return stream


@pytest.mark.parametrize("seed", range(3))
def test_of_random_tables_in_stretches(seed: int) -> None:
    """Stretches put together, of which one table may be found at once in one and row by row in another."""
    stream, known = random_stream(seed, 300), Definitions()
    found: list[Any] = []
    for start in range(0, len(stream), 70):
        some, left = at_once(stream[start : start + 70], known)
        found += some + row_by_row(left, known)
    assert net(found) == net(row_by_row(stream, known))


def test_generated_columns_between_others_are_in_no_image() -> None:
    plain = table(unsigned=False).info
    generated = replace(column(4, "g", LONGLONG), generated="`id` + 1", generated_stored=True)
    v, key, n = plain.columns
    columns = tuple(replace(each, offset=at) for at, each in enumerate((v, generated, key, n)))
    version = TableVersion(replace(plain, columns=columns), "d", "t", 1)
    encoder, known = RowEncoder(version.info), Definitions()
    rows = [
        {"v": "a" * number, "g": number + 1, "id": number, "n": number % 2 or None} for number in range(5)
    ]
    kinds = [INSERT] * 5 + [UPDATE] * 4 + [DELETE]
    encoded = [encoder.insert(row) for row in rows]
    encoded += [encoder.update(row, {**row, "n": 7}) for row in rows[:4]]
    encoded.append(encoder.delete(rows[4]))
    for count in (5, 9, 10):
        events = TableEvents(version, kinds[:count], encoded[:count], 0)
        stream = [Transaction(0, 1 << 30, (events,), 0)]
        found, left = at_once(stream, known)
        assert not left
        assert net(found) == net(row_by_row(stream, known))


def as_found(rows: BinlogRows) -> list[tuple[int, int, int, int, bytes]]:
    """Number of the binlog, table id, kind, ordinal, row; in execution order."""
    data = rows.spans.buffer.data
    numbers = (each.tolist() for each in (rows.binlog, rows.table, rows.kind, rows.ordinal))
    spans = zip(rows.spans.begin.tolist(), rows.spans.end.tolist(), strict=True)
    return list(zip(*numbers, [data[begin:end] for begin, end in spans], strict=True))


def as_decoded(payloads: Iterable[bytes]) -> Iterator[tuple[int, int, int, int, bytes]]:
    for number, payload in enumerate(payloads):
        prewrite = binlog_pb2.PrewriteValue.FromString(binlog.parse(payload).prewrite_value)
        ordinals = itertools.count()
        for mutation in prewrite.mutations:
            for kind, row in zip(*row_events(mutation, mutation.sequence[:], 0), strict=True):
                yield number, mutation.table_id, kind, next(ordinals), row


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_of_binlogs_of_recorded_streams(scenario: str) -> None:
    """What is found without translating, between two DDL, is what translated rows give."""
    translator, known = Translator(SchemaTracker.from_history([], finished_ts=0), Rules()), Definitions()
    taken = 0
    for is_ddl, some in itertools.groupby(recorded.merged(scenario), lambda entry: entry.job is not None):
        entries = list(some)
        if is_ddl:
            for entry in entries:
                translator.translate(entry)
            continue
        payloads = [entry.payload for entry in entries]
        rows = binlog_rows(payloads)
        if rows is None:
            continue
        assert as_found(rows) == list(as_decoded(payloads))
        effects = RowEffects(known, known.number_of, frozenset(), BUCKETS)
        of_binlogs = effects.of_binlogs(entries, translator)
        assert of_binlogs is not None
        taken += 1
        stream = [item for item in map(translator.translate, entries) if isinstance(item, Transaction)]
        found, left = effects.read(stream)
        assert (net(of_binlogs[0]), of_binlogs[1]) == (net(found), left)
    assert taken


def canonical(transaction: Transaction) -> bytes:
    return binlog.canonical(binlog.parse(payload_of(transaction)))


@pytest.mark.parametrize("count", [3, 40])
def test_odd_binlogs_are_taken_one_by_one(count: int) -> None:
    """Cut off anywhere, or with any byte changed, in a long stretch and in a short one: what is found is what
    decoding gives, and where that fails nothing is."""
    version = table(unsigned=False)
    stream = list(history(version, random.Random(1), unsigned=False))[:count]
    whole = [canonical(item) for item in stream]
    found = binlog_rows(whole)
    assert found is not None
    assert as_found(found) == list(as_decoded(whole))
    right = min(whole, key=len)
    place = whole.index(right)
    odd = [right[:end] for end in range(len(right))] + [
        right[:at] + bytes([byte]) + right[at + 1 :]
        for at in range(len(right))
        for byte in (0x00, 0x01, 0x12, 0x38, 0x7F, 0x80, 0xFF)
    ]
    taken = 0
    for payload in odd:
        payloads = [*whole[:place], payload, *whole[place + 1 :]]
        rows = binlog_rows(payloads)
        if rows is not None:
            taken += 1
            assert as_found(rows) == list(as_decoded(payloads)), payload
    assert 0 < taken < len(odd)


def first_stretch(scenario: str, rules: Rules) -> tuple[list[Merged], Translator, SchemaTracker]:
    """Binlogs of rows up to a DDL, who translates them, and the schema there."""
    entries = recorded.merged(scenario)
    start = next(at for at, entry in enumerate(entries) if entry.job is None)
    stop = next(at for at in range(start, len(entries)) if entries[at].job is not None)
    tracker = SchemaTracker.from_history([], finished_ts=0)
    translator = Translator(tracker, rules)
    for entry in entries[:start]:
        translator.translate(entry)
    return entries[start:stop], translator, tracker


def test_binlogs_that_rules_are_about_are_translated() -> None:
    known = Definitions()
    first = first_stretch("types", Rules())[0][0]
    for rules in (Rules(), Rules(passed_over=frozenset({first.commit_ts}))):
        effects = RowEffects(known, known.number_of, frozenset(), BUCKETS)
        found = effects.of_binlogs(*first_stretch("types", rules)[:2])
        assert (found is None) == bool(rules.passed_over)


def test_binlogs_with_rows_of_several_tables_of_one_target_are_translated() -> None:
    """Pumps send tables in any order: a row that moves would come before it goes."""
    version = table(unsigned=False)
    apart = [replace(version, info=replace(version.info, id=number)) for number in (7, 8)]
    (first, second) = (next(iter(history(one, random.Random(1), unsigned=False))) for one in apart)
    both = replace(first, tables=(*first.tables, *second.tables))
    rules = SimpleNamespace(passed_over=frozenset())

    def taken(transactions: Sequence[Transaction], target: str) -> bool:
        tables = {one.info.id: replace(one, target=("db", target.format(one.info.id))) for one in apart}
        translator: Any = SimpleNamespace(
            rules=rules,
            catch_up=lambda *_: None,
            row_filter=lambda number, *_: RowFilter(1, tables[number]),
        )
        entries = [Merged(one.commit_ts, canonical(one), None) for one in transactions]
        known = Definitions()
        effects = RowEffects(known, known.number_of, frozenset(), BUCKETS)
        return effects.of_binlogs(entries, translator) is not None

    assert taken([both], "t{}")
    assert not taken([both], "all")
    assert taken([first, replace(second, commit_ts=first.commit_ts + 1)], "all")


def test_a_large_binlog_is_read_while_it_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is gone when the next one is asked for."""
    entries, _, tracker = first_stretch("types", Rules())
    gone: set[int] = set()

    def on_disk(entry: Merged) -> Merged:
        def read(offset: int, size: int) -> bytes:
            assert entry.commit_ts not in gone
            return entry.payload[offset : offset + size]

        start_ts = binlog.parse(entry.payload).start_ts
        file = Spilled(entry.commit_ts, start_ts, len(entry.payload), 0, 0, read)
        return Merged(entry.commit_ts, b"", None, file)

    def pulled(_pumps: object, after_ts: int, until_ts: int, _table_ids: object) -> Iterator[Merged]:
        for entry in some:
            yield entry
            gone.add(entry.commit_ts)

    monkeypatch.setattr(pump_range, "merged_range", pulled)
    state = StreamState(PumpSet(1, {}), packed(tracker))
    part = PumpSlice.of(state, 0, 1, 1)
    known = Definitions()
    reading = Reading(Place("pumps"), ((part,),), Selection(), known, frozenset(), BUCKETS, "fail")
    numbers = pa.record_batch([pa.array([0])], names=["id"])
    some: list[Merged] = entries
    expected = net(list(reading([numbers])))
    assert len(entries) > 4
    assert expected
    some = [on_disk(entry) if at % 3 == 1 else entry for at, entry in enumerate(entries)]
    gone.clear()
    assert net(list(reading([numbers]))) == expected
