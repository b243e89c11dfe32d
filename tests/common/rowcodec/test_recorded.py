"""Every row that a real TiDB wrote: decoded, and compared with the contents and events recorded."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from tests.common.rowcodec.recorded import (
    CORPUS,
    DELETE,
    INSERT,
    SCENARIOS,
    UPDATE,
    Event,
    events,
    expected,
    history,
    lines,
    shown,
)
from tidb_binlog.rowcodec.datum import NULL_DATUM
from tidb_binlog.rowcodec.defaults import absent_datum
from tidb_binlog.rowcodec.encoder import RowEncoder, needs_restored_data
from tidb_binlog.rowcodec.plan import TablePlan, compile_table
from tidb_binlog.rowcodec.values import EnumValue, SetValue, python_conversion
from tidb_binlog.rowcodec.varint import svarint
from tidb_binlog.table_info import JSON, Column, TableInfo

# Columns change type on the way, or rows move between tables, which is more than decoding rows.
NEED_DDL = {"ddl", "ddl-exchange", "ddl-flashback-db", "ddl-multischema", "ddl-swap"}
Images = tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]


class Plans:
    def __init__(self) -> None:
        self._plans: dict[int, tuple[TableInfo, TablePlan]] = {}

    def of(self, info: TableInfo) -> TablePlan:
        if id(info) not in self._plans:
            self._plans[id(info)] = (info, compile_table(info))
        return self._plans[id(info)][1]


def images(plan: TablePlan, event: Event) -> Images:
    if event.kind == INSERT:
        return None, plan.decode_insert(event.row)
    if event.kind == DELETE:
        return plan.decode_delete(event.row), None
    return plan.decode_update(event.row)


def strict_images(plan: TablePlan, event: Event) -> Images:
    if event.kind == INSERT:
        return None, plan.strict.insert(event.row)
    if event.kind == DELETE:
        return plan.strict.delete(event.row), None
    return plan.strict.update(event.row)[:2]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_row_decodes_the_same_both_ways(scenario: str) -> None:
    plans, past = Plans(), history(scenario)
    for event in events(scenario):
        plan = plans.of(past.at(event.table_id, event.schema_version))
        assert images(plan, event) == strict_images(plan, event)


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name not in NEED_DDL])
def test_contents_are_those_of_the_database(scenario: str) -> None:
    """Replays all row events and compares every table with what TiDB held at the end."""
    plans, past = Plans(), history(scenario)
    tables: dict[int, Counter[tuple[tuple[int, Any], ...]]] = defaultdict(Counter)
    for event in events(scenario):
        info = past.at(event.table_id, event.schema_version)
        plan = plans.of(info)
        old, new = images(plan, event)
        for image, change in ((old, -1), (new, 1)):
            if image is not None:
                tables[event.table_id][_by_id(plans.of(past.last(event.table_id)), plan.columns, image)] += (
                    change
                )
    compared = 0
    by_name = {name: table_id for table_id, name in past.names.items()}
    for name, entry in expected(scenario).items():
        table_id = by_name[name]
        rows = tables[table_id]
        assert all(count > 0 for count in (+rows).values())
        assert not -rows, f"{name}: rows deleted that were never there"
        last = past.last(table_id)
        shapes = {column["name"].lower(): column["repr"] for column in entry["columns"]}
        places = [n for n, column in enumerate(entry["columns"]) if not column["generated"]]
        writable = plans.of(last).columns
        found = sorted(
            json.dumps(
                [
                    shown(value, shapes[column.name.lower()])
                    for column, (_, value) in zip(writable, row, strict=True)
                ]
            )
            for row in rows.elements()
        )
        wanted = sorted(json.dumps([row[n] for n in places]) for row in entry["rows"])
        assert found == wanted, name
        compared += len(wanted)
    assert compared


def _by_id(last: TablePlan, columns: Iterable[Column], image: tuple[Any, ...]) -> tuple[tuple[int, Any], ...]:
    """The image as the last definition shows it: later columns hold their origin default."""
    values = {column.id: value for column, value in zip(columns, image, strict=True)}
    return tuple(
        (column.id, values[column.id] if column.id in values else _absent(column)) for column in last.columns
    )


def _absent(column: Column) -> Any:
    datum = absent_datum(column)
    assert datum is not None, column.name
    return None if datum == NULL_DATUM else python_conversion(column, 0).read(datum, 0)[0]


def _event_value(value: Any) -> Any:
    """A value as the decoded events of the recording show it."""
    if isinstance(value, EnumValue | SetValue):
        return value.number
    if isinstance(value, float):
        return {"double": repr(value)}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    return value


def _event_columns(plan: TablePlan, event: Event) -> dict[str, dict[str, Any]]:
    old, new = images(plan, event)
    first = old if old is not None else new
    assert first is not None
    found = {}
    for place, column in enumerate(plan.columns):
        found[column.name] = {"value": _event_value(first[place])}
        if event.kind == UPDATE:
            assert new is not None
            found[column.name]["changed"] = _event_value(new[place])
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rows_equal_the_recorded_events(scenario: str) -> None:
    plans, past = Plans(), history(scenario)
    found: dict[int, list[dict[str, dict[str, Any]]]] = defaultdict(list)
    for event in events(scenario):
        if event.table_id not in past.system:
            plan = plans.of(past.at(event.table_id, event.schema_version))
            found[event.commit_ts].append(_event_columns(plan, event))
    compared = 0
    for line in lines(CORPUS / scenario / "events" / "events.jsonl.gz"):
        recorded = line.get("events", ())
        ours = found[line["commit_ts"]] if recorded else []
        for columns, entry in zip(ours, recorded, strict=True):
            theirs = {column["name"]: column for column in entry["columns"]}
            if scenario not in NEED_DDL:
                assert list(columns) == list(theirs)
            # While a DDL is under way that drainer reads a row by the definition before or after it.
            common = [name for name in columns if name in theirs]
            assert common
            for name in common:
                assert columns[name] == {key: theirs[name][key] for key in columns[name]}, name
            compared += 1
    assert compared


def _rowid(event: Event) -> int:
    """The hidden row id: in front of an INSERT, at the end of the other images."""
    if event.kind == INSERT:
        return svarint(event.row, 1)[0]
    return svarint(event.row, event.row.rindex(b"\x08\x01\x08") + 3)[0]


def _can_be_equal(info: TableInfo) -> bool:
    """Values whose encoding does not follow from what readers give.

    JSON text does not tell 1.0 from 1 nor a time from its text; columns that are not public, and generated
    ones, are in the row but not among the values; case-insensitive sort keys need the server's tables.
    """
    if any(not column.is_writable and not column.is_virtual for column in info.columns):
        return False
    primary = info.primary_index if info.is_common_handle else None
    handle = {part.offset for part in primary.columns} if primary is not None else set()
    return not any(
        column.type.tp == JSON
        or (
            column.offset in handle
            and needs_restored_data(column.type)
            and column.type.collate[-4:] != "_bin"
        )
        for column in info.columns
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_encoder_writes_the_same_bytes(scenario: str) -> None:
    plans, past = Plans(), history(scenario)
    encoders: dict[int, RowEncoder] = {}
    compared = 0
    for event in events(scenario):
        info = past.at(event.table_id, event.schema_version)
        old, new = images(plans.of(info), event)
        if not _can_be_equal(info):
            continue
        encoder = encoders.setdefault(id(info), RowEncoder(info))
        hidden = not info.pk_is_handle and not info.is_common_handle
        rowid = _rowid(event) if hidden else None
        if old is None:
            assert new is not None
            row = encoder.insert(new, rowid)
        else:
            row = encoder.delete(old, rowid) if new is None else encoder.update(old, new, rowid)
        if row != event.row:
            # a row from the middle of a DDL holds columns that its definition does not know
            assert scenario in ("ddl", "ddl-multischema"), (info.name, event.row.hex(), row.hex())
            continue
        compared += 1
    assert compared
