"""What the JSON sinks are given: canal-json, a message a row, DDL with their names downstream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drainer.sink.messages.json_items import JsonItems
from drainer.testing.stream import Stream
from drainer.txn import INSERT, UPDATE, Ddl, LargeTransaction, Transaction
from tidb_binlog.errors import DownstreamError


def items_of(stream: Stream) -> tuple[JsonItems, Any]:
    translator = stream.translator(0)
    items = JsonItems()
    items.route = translator.route
    return items, translator


def shown(items: Any) -> list[dict[str, Any]]:
    return [json.loads(message.value) for item in items for message in item]


def test_rows_and_ddl_are_messages() -> None:
    stream = Stream()
    ts = stream.transaction(("t", INSERT, (1, "a")), ("t", UPDATE, (1, "a")))
    items, translator = items_of(stream)
    given = [translator.translate(entry) for entry in stream.entries[1:]]
    found = shown(items(given))
    assert [one["type"] for one in found] == ["CREATE", "CREATE", "INSERT", "UPDATE"]
    assert found[0]["sql"] == "use `d`; CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(64));"
    assert [(one["_tidb"]["commitTs"], one["data"]) for one in found[2:]] == [
        (ts, [{"id": "1", "v": "a"}]),
        (ts, [{"id": "1", "v": "a+"}]),
    ]
    assert found[3]["old"] == [{"id": "1", "v": "a"}]


def test_a_large_transaction_is_read_again_from_its_first_row() -> None:
    stream = Stream()
    ts = stream.large_transaction(5000)
    items, translator = items_of(stream)
    for entry in stream.entries[:-1]:
        translator.translate(entry)
    spilled = stream.entries[-1].spilled
    assert spilled is not None
    given = items([LargeTransaction(ts - 1, ts, spilled.size, lambda: translator.pieces(spilled))])
    for _ in range(2):
        assert [int(one["data"][0]["id"]) for one in shown(given)] == list(range(5000))


def test_a_ddl_without_a_text_downstream_stops_the_drainer() -> None:
    items, _ = items_of(Stream())
    items.route = lambda schema, table="": ("other", table)  # type: ignore[misc]
    ddl = Ddl(10, 1, 5, "d", "ALTER TABLE t ADD c INT", (("d", "t"),), 3)
    with pytest.raises(DownstreamError, match="stops the drainer"):
        items([ddl])


def test_a_transaction_without_rows_is_no_message() -> None:
    items, _ = items_of(Stream())
    assert items([Transaction(9, 10, (), 0)]) == [[]]
