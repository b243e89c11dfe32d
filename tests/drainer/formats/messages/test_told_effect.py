"""What a DDL does to rows, as messages say it: who has nothing else has the rows of the upstream."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from drainer.changes import model
from drainer.changes.row_reader import RowReader
from drainer.formats.messages.message import open_format
from drainer.txn import Ddl
from tests.drainer.changes.mirror import World
from tests.drainer.formats.messages.changes import items
from tests.drainer.support import recorded

FORMATS = pytest.mark.parametrize("name", ["canal-json", "debezium-json"])


def told(name: str, ddl: Ddl) -> Any:
    """The effect that the message has."""
    message = open_format(name).ddl(ddl, ddl.query)
    assert message is not None
    assert message.value is not None
    extension = json.loads(message.value)["_tidb"]
    assert extension["commitTs"] == ddl.commit_ts
    return extension["ddl"]


class FromMessages(RowReader):
    """What a consumer knows of a DDL: its message."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def ddl(self, ddl: Ddl) -> model.Ddl:
        found = told(self.name, ddl)

        def table(names: dict[str, Any]) -> model.Table:
            return model.Table(names["database"], names["table"], (), (), names["id"], None)

        effect = model.DdlEffect(
            tuple((table(each["from"]), table(each["to"])) for each in found["moved"]),
            tuple(map(table, found["emptied"])),
            tuple(map(table, found["reread"])),
            found["everything"],
        )
        after = tuple(map(table, found["tables"]))
        return model.Ddl(ddl.commit_ts, ddl.query, ddl.schema, after=after, kind=found["kind"], effect=effect)


@FORMATS
@pytest.mark.parametrize("seed", range(10))
def test_who_mirrors_rows_by_the_messages_alone_has_those_of_the_upstream(name: str, seed: int) -> None:
    draw, world = random.Random(seed), World()
    world.reader = FromMessages(name)
    for _ in range(60):
        world.any_change(draw)
        assert world.mirror == world.truth()
        if world.tables:
            world.insert(draw.choice(list(world.tables)))


@FORMATS
@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_what_a_recorded_ddl_does_to_rows_is_told(name: str, scenario: str) -> None:
    reader = RowReader()
    for item in items(scenario):
        if isinstance(item, Ddl):
            found, wanted = told(name, item), reader.ddl(item)
            assert found["kind"] == wanted.kind
            assert [(each["id"], f"{each['database']}.{each['table']}") for each in found["tables"]] == [
                (table.id, str(table)) for table in wanted.after
            ]
            assert [each["columns"] for each in found["tables"]] == [
                [{"id": column.id, "name": column.name} for column in table.columns] for table in wanted.after
            ]
            for part in ("emptied", "reread"):
                assert [each["id"] for each in found[part]] == [
                    table.id for table in getattr(wanted.effect, part)
                ]


class Rebuilt:
    """Tables of who has the messages alone: name -> how often each key is there.

    `unknown` are tables that are to be read anew, which a recording has no source for.
    """

    def __init__(self) -> None:
        self.tables: dict[str, Counter[str]] = {}
        self.unknown: set[str] = set()

    def row(self, name: str, key: str, before: Any, after: Any) -> None:
        self.tables.setdefault(name, Counter())[key] += (after is not None) - (before is not None)

    def ddl(self, effect: Any) -> None:
        assert not effect["everything"]
        moved = [(self._take(each["from"]), f"{named(each['to'])}") for each in effect["moved"]]
        for gone in effect["emptied"]:
            self._take(gone)
        for (rows, is_unknown), name in moved:
            self.tables[name] = rows
            self.unknown |= {name} if is_unknown else set()
        self.unknown |= {named(each) for each in effect["reread"]}

    def _take(self, table: Any) -> tuple[Counter[str], bool]:
        name = named(table)
        was_unknown = name in self.unknown
        self.unknown.discard(name)
        return self.tables.pop(name, Counter()), was_unknown


def named(table: Any) -> str:
    return f"{table['database']}.{table['table']}"


def read_canal(found: Any) -> tuple[str, Any, Any]:
    """Name, row before, row after."""
    (row,) = found["data"]
    before, after = found["type"] != "INSERT", found["type"] != "DELETE"
    return named(found), row if before else None, row if after else None


def read_debezium(found: Any) -> tuple[str, Any, Any]:
    source = found["source"]
    return f"{source['db']}.{source['table']}", found["before"], found["after"]


def whole(value: int | str) -> int:
    """A key: Debezium has BIGINT UNSIGNED as the base64 of its bytes."""
    try:
        return int(value)
    except ValueError:
        return int.from_bytes(base64.b64decode(value), "big", signed=True)


@pytest.mark.parametrize(("name", "read"), [("canal-json", read_canal), ("debezium-json", read_debezium)])
@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_tables_that_are_rebuilt_from_a_recorded_stream_alone(
    scenario: str, name: str, read: Callable[[Any], tuple[str, Any, Any]]
) -> None:
    """The rows that the upstream had in the end."""
    made, rebuilt = open_format(name), Rebuilt()
    for item in items(scenario):
        if isinstance(item, Ddl):
            rebuilt.ddl(told(name, item))
            continue
        for message in made.rows(item):
            table, before, after = read(json.loads(message.value or b""))
            rebuilt.row(table, (message.key or b"").decode(), before, after)
    compared = 0
    for database, there in recorded.expected(scenario).items():
        for table_name, table in there["tables"].items():
            full_name = f"{database}.{table_name}"
            if "rows" not in table or full_name in rebuilt.unknown:
                continue  # a view, or rows that no message tells
            left = +rebuilt.tables.pop(full_name, Counter())
            assert left.total() == len(table["rows"]), full_name
            compared += 1
            places = [[column["name"] for column in table["columns"]].index(part) for part in table["key"]]
            if [table["columns"][place]["repr"] for place in places] == ["int"]:
                keys = {whole(next(iter(json.loads(key).values()))) for key in left}
                assert keys == {int(row[places[0]]) for row in table["rows"]}, full_name
    assert compared or rebuilt.unknown
    rest = {full_name: rows for full_name, rows in rebuilt.tables.items() if full_name not in rebuilt.unknown}
    assert not any((+rows).total() for rows in rest.values()), rest
