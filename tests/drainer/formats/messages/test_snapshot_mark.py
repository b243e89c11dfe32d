"""Rows that stood in the upstream are marked as such in every form that has a place for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from drainer.formats.messages.message import FormatOptions, Message, open_format
from drainer.sink.kafka.messages import FAIL, ObinlogMessages
from drainer.sink.kafka.position import NOTHING
from drainer.txn import INSERT
from tests.drainer.formats.messages.changes import ROW, VERSION, Subjects, transaction

CHANGED = transaction(VERSION, (INSERT, ROW))
STOOD = replace(CHANGED, snapshot="snapshot:7:1:end")


def single(name: str, source: Any, **options: Any) -> Message:
    (message,) = open_format(name, FormatOptions(**options)).rows(source)
    return message


@pytest.mark.parametrize("whole", [False, True])
def test_canal_json(whole: bool) -> None:
    plain, marked = (
        json.loads(single("canal-json", source, whole_transactions=whole).value or b"")
        for source in (CHANGED, STOOD)
    )
    assert "snapshot" not in plain["_tidb"]
    assert marked["_tidb"].pop("snapshot") is True
    assert marked == plain


def test_debezium_json() -> None:
    plain, marked = (json.loads(single("debezium-json", each).value or b"") for each in (CHANGED, STOOD))
    assert (plain["op"], plain["source"]["snapshot"]) == ("c", "false")
    assert (marked["op"], marked["source"]["snapshot"]) == ("r", "true")
    marked["op"], marked["source"]["snapshot"] = "c", "false"
    assert marked == plain


def test_avro() -> None:
    registry = Subjects()
    plain, marked = (
        registry.read(single("avro", each, registry=registry).value or b"")[1] for each in (CHANGED, STOOD)
    )
    assert (plain.pop("_tidb_op"), marked.pop("_tidb_op")) == ("c", "r")
    assert plain == marked


def test_obinlog_has_no_place_but_the_headers() -> None:
    messages = ObinlogMessages(by_table=False, headers=False, oversize=FAIL)
    (plain,) = messages.transaction(CHANGED, NOTHING, 1 << 20)
    (marked,) = messages.transaction(STOOD, NOTHING, 1 << 20)
    assert plain.headers == []
    assert ("snapshot", b"1") in marked.headers
    assert marked.value == plain.value
