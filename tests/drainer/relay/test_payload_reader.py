"""Payload reader: what was logged is what the translator had made of it, by any rules, for every recorded
scenario and for rows made up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from drainer.config.options import DrainerConfig
from drainer.formats.obinlog.writer import definition_document
from drainer.formats.relay_payload import PayloadWriter, in_memory, record_head
from drainer.relay import record_readers
from drainer.relay.record_readers import PayloadReader, RecordReaders
from drainer.stream.rules.rule_set import Rules, read_rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.moved_rows import WHOLE_BYTES_MAX
from drainer.stream.translate.translator import Translator
from drainer.txn import DELETE, INSERT, Ddl, Item, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import key, kind, table
from tests.drainer.support import recorded
from tests.drainer.support.payloads import sent
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.wire import binlog_pb2

RULES: dict[str, dict[str, Any]] = {
    "none": {},
    "routes": {
        "table_migrate_rule": [
            {
                "source": {"schema": "*", "table": "*"},
                "target": {"schema": "elsewhere"},
                "binlog-filter-rule": ["no-deletes"],
            }
        ],
        "binlog_filter_rule": {"no-deletes": {"ignore-event": ["delete"]}},
    },
    "functions": {
        "row_rule": [{"db-name": "~.*", "tbl-name": "~.*", "python": f"{__name__}:every_other"}],
    },
}


def every_other(row: Any) -> Any:
    """Leaves out some rows, by their values."""
    image = row.after or row.before
    return row if len(repr(sorted(image.items(), key=repr))) % 2 else None


def rules_of(name: str) -> Rules:
    return read_rules(replace(DrainerConfig(), **RULES[name]))


def logged(items: Iterable[Item], rules: Iterable[Rules], per_file: int = 40) -> Iterator[tuple[Item, Item]]:
    """Each item and what is read of its record: written in files of so many."""
    writer, readers, before = PayloadWriter(), RecordReaders(), None
    for number, (item, now) in enumerate(zip(items, rules, strict=False)):
        if now is not before:
            writer.rules(now.text)
            before = now
        if number % per_file == 0:
            writer.begin_file()
            readers = RecordReaders()
        record = writer.ddl(item, "") if isinstance(item, Ddl) else writer.transaction(item)
        head = record_head(in_memory(record), len(record))
        assert head.commit_ts == item.commit_ts
        read = in_memory(record)
        commit_ts, reader = readers.of(read, len(record))
        assert commit_ts == item.commit_ts
        found = reader.item(read, len(record))
        yield item, found
        if isinstance(item, Ddl):
            continue
        assert isinstance(found, Transaction)
        assert head.rows == sum(len(events.rows) for events in item.tables)
        pieces = list(reader.pieces(read, len(record)))
        assert rows(found) == [row for piece in pieces for row in rows(piece)]
        assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def rows(transaction: Transaction) -> list[tuple[Any, ...]]:
    """Each row with its place and all that is known of its table."""
    return [
        (events.first_ordinal + place, kind, row, definition, events.table.partial)
        for events in transaction.tables
        for definition in [definition_document(events.table)]
        for place, (kind, row) in enumerate(zip(events.kinds, events.rows, strict=True))
    ]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("scenario", ["basic", "ddl", "txn", "types"])
def test_every_recorded_row_is_read_as_it_was_translated(scenario: str, name: str) -> None:
    """Rules change in the middle."""
    stream = recorded.merged(scenario)
    translator = Translator(SchemaTracker.from_history([], finished_ts=0), rules_of("none"))
    middle, chosen = stream[len(stream) // 2].commit_ts, rules_of(name)
    in_force: list[Rules] = []

    def items() -> Iterator[Item]:
        for entry in stream:
            if entry.commit_ts >= middle and translator.rules is not chosen:
                translator.take_rules(chosen)
            in_force.append(translator.rules)
            item = translator.translate(entry)
            if isinstance(item, Ddl) or item.tables:
                yield item
            else:
                in_force.pop()

    compared = 0
    for item, found in logged(items(), in_force):
        compared += 1
        if isinstance(item, Ddl):
            assert found == item
        else:
            assert isinstance(found, Transaction)
            assert rows(found) == rows(item)
            assert found.start_ts == item.start_ts
    assert compared > 5


INFO = table(("id", kind("bigint", not_null=True)), ("c", kind("varchar")), handle="rowid")


def made(random: Random, commit_ts: int, versions: list[TableVersion]) -> Transaction:
    """Rows of some tables; of one table in several runs, as filters leave them."""
    encoder, events, ordinal = RowEncoder(INFO), [], 0
    for version in random.sample(versions, random.randint(1, len(versions))):
        count = random.randint(1, 5)
        encoded = [
            encoder.insert((random.randrange(1 << 40), "x" * random.randrange(40)), 1) for _ in range(count)
        ]
        events.append(TableEvents(version, (INSERT,) * count, encoded, ordinal))
        ordinal += count
    return sent(Transaction(commit_ts - 1, commit_ts, tuple(events), 99))


@pytest.mark.parametrize("seed", range(5))
def test_any_tables_in_any_order(seed: int) -> None:
    random = Random(seed)
    versions = [
        TableVersion(
            replace(INFO, id=number), "shop", f"t{number}", 1, ("a", "b"), frozenset({2}), bool(number % 2)
        )
        for number in range(1, 6)
    ]
    rules = [Rules(text=""), Rules(text="")]
    items = [made(random, ts, versions) for ts in range(1, 60)]
    per_file = random.randint(1, 30)
    for item, found in logged(items, (random.choice(rules) for _ in items), per_file):
        assert isinstance(item, Transaction)
        assert isinstance(found, Transaction)
        assert rows(found) == rows(item)


def test_rows_of_tables_that_do_not_replicate_stay_out() -> None:
    """They are in the record: the pump sent them."""
    shown, hidden = (TableVersion(replace(INFO, id=number), "shop", f"t{number}", 1) for number in (1, 2))
    whole = next(
        one for seed in range(20) if len((one := made(Random(seed), 5, [shown, hidden])).tables) == 2
    )
    kept = replace(whole, tables=tuple(events for events in whole.tables if events.table is shown))
    ((_, found),) = logged([kept], [Rules()])
    assert isinstance(found, Transaction)
    assert rows(found) == rows(kept)
    payload = binlog_pb2.Binlog.FromString(whole.payload)
    assert b"t2" not in payload.prewrite_value
    assert len(binlog_pb2.PrewriteValue.FromString(payload.prewrite_value).mutations) == 2


def test_rows_that_leave_a_table_come_first_where_tables_have_one_target() -> None:
    """As the translator has it: positions of lanes count rows in that order."""
    route = {"source": {"schema": "shop", "table": "t*"}, "target": {"schema": "shop", "table": "all"}}
    rules = read_rules(replace(DrainerConfig(), table_migrate_rule=[route]))
    left, entered = (
        TableVersion(replace(INFO, id=number), "shop", f"t{number}", 1, ("shop", "all")) for number in (1, 2)
    )
    encoder = RowEncoder(INFO)
    gone = TableEvents(left, (DELETE,), [encoder.delete((7, "x"), 1)], 0)
    come = TableEvents(entered, (INSERT,), [encoder.insert((7, "x"), 1)], 1)
    told = sent(Transaction(4, 5, (come, gone), 99))
    ((_, found),) = logged([replace(told, tables=(gone, come))], [rules])
    assert isinstance(found, Transaction)
    assert [(events.table.name, events.first_ordinal) for events in found.tables] == [("t1", 0), ("t2", 1)]


@pytest.mark.parametrize("limit", [0, WHOLE_BYTES_MAX])
def test_rows_that_move_both_ways_come_as_the_translator_has_them(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole and in pieces, as `logged` compares."""
    monkeypatch.setattr(record_readers, "WHOLE_BYTES_MAX", limit)
    route = {"source": {"schema": "shop", "table": "t*"}, "target": {"schema": "shop", "table": "all"}}
    rules = read_rules(replace(DrainerConfig(), table_migrate_rule=[route]))
    info = table(("id", key("bigint")))
    encoder = RowEncoder(info)
    tables = tuple(
        TableEvents(
            TableVersion(replace(info, id=number), "shop", f"t{number}", 1, ("shop", "all")),
            (INSERT, DELETE),
            [encoder.insert((number,)), encoder.delete((3 - number,))],
            2 * number - 2,
        )
        for number in (1, 2)
    )
    ((_, found),) = logged([sent(Transaction(4, 5, tables, 99))], [rules])
    assert isinstance(found, Transaction)
    assert [kind for events in found.tables for kind in events.kinds] == [DELETE, DELETE, INSERT, INSERT]


def test_what_lacks_its_beginning_is_not_guessed() -> None:
    writer = PayloadWriter()
    version = TableVersion(INFO, "shop", "t", 1)
    first, second = (writer.transaction(made(Random(ts), ts, [version])) for ts in (1, 2))
    read, size = in_memory(second), len(second)
    with pytest.raises(Corruption, match="does not say which rules"):
        RecordReaders().of(read, size)[1].item(read, size)
    reader = PayloadReader(record_head(in_memory(first), len(first)).rules, lambda version: version)
    with pytest.raises(Corruption, match=r"commit_ts 2 .* definition \(1\) that the file does not have"):
        reader.item(read, size)


@pytest.mark.parametrize("cut", [1, 10, 27, 40])
def test_a_record_that_is_cut_is_corrupt(cut: int) -> None:
    record = PayloadWriter().transaction(made(Random(1), 1, [TableVersion(INFO, "shop", "t", 1)]))
    with pytest.raises(Exception) as found:
        record_head(in_memory(record[:cut]), cut)
    assert type(found.value).__name__ in ("Corruption", "ConfigError")
