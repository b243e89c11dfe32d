"""Rows as objects: what fits, and what is said about what does not."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType

import attrs
import pydantic
import pytest

import drainer
import pumpclient
from binlog_testing import BinlogCluster
from drainer.changes.row_types import RowTypes
from pumpclient import column
from tests.cases import case
from tidb_binlog.errors import ConfigError

Number = NewType("Number", int)


class Size(Enum):
    small = "small"
    large = "large"


@dataclass
class Item:
    id: int
    name: str
    price: Decimal
    size: Size
    sold: bool
    made: datetime.date | None
    tags: list[str]


@attrs.define
class AttrsItem:
    id: Number
    _name: str  # the constructor calls it `name`
    made: datetime.date | None
    price: float
    size: Literal["small", "large"]
    note: str = "none"
    tags: Any = None


class Model(pydantic.BaseModel):
    number: Annotated[int, pydantic.Field(alias="id", gt=0)]
    name: str
    price: float
    tags: list[str]


COLUMNS = [
    column("id", "int", nullable=False),
    column("name", "varchar(40)", nullable=False),
    column("price", "decimal(8,2)", nullable=False),
    column("size", "enum('small','large')", nullable=False),
    column("sold", "tinyint(1)", nullable=False),
    column("made", "date"),
    column("tags", "json", nullable=False),
]
PEN = Item(1, "pen", Decimal("1.50"), Size.large, True, datetime.date(2026, 11, 28), ["a", "b"])
INK = Item(2, "ink", Decimal("2.00"), Size.small, False, None, [])


@pytest.fixture(scope="module")
def cluster() -> Iterator[BinlogCluster]:
    with BinlogCluster() as made, made.publisher_sync() as publisher:
        publisher.create_database("shop")
        publisher.create_table("shop.items", COLUMNS, primary_key=["id"])
        publisher.create_table("shop.ids", [column("id", "binary(16)", nullable=False)], primary_key=["id"])
        with publisher.transaction() as txn:
            txn.insert("shop.items", PEN)
            txn.update("shop.items", PEN, INK)
        with publisher.transaction() as txn:
            txn.insert("shop.ids", {"id": uuid.UUID(int=7)})
        yield made


def read(cluster: BinlogCluster, row_type: Any, tables: str = "shop.items") -> list[Any]:
    with drainer.subscribe_sync(
        cluster.endpoint, tables=[tables], start="oldest", stop="now", row_type=row_type
    ) as stream:
        return [row for change in stream if isinstance(change, drainer.Transaction) for row in change.rows]


def test_a_dataclass(cluster: BinlogCluster) -> None:
    insert, update = read(cluster, Item)
    assert (insert.before, insert.after) == (None, PEN)
    assert (update.before, update.after) == (PEN, INK)
    assert update.changed == ("id", "name", "price", "size", "sold", "made", "tags")
    assert update.key_values == (2,)
    assert (update.kind, str(update.table)) == ("update", "shop.items")


def test_attrs_and_pydantic(cluster: BinlogCluster) -> None:
    _, update = read(cluster, AttrsItem)
    assert update.after == AttrsItem(Number(2), "ink", None, 2.0, "small", "none", "[]")
    _, update = read(cluster, Model)
    assert update.before == Model(id=1, name="pen", price=1.5, tags=["a", "b"])


def test_a_class_for_each_table(cluster: BinlogCluster) -> None:
    @dataclass
    class Id:
        id: uuid.UUID

    third = read(cluster, {"Shop.IDS": Id}, "shop.*")[2]
    assert third.after == Id(uuid.UUID(int=7))
    first, *_ = read(cluster, {"shop.ids": Id}, "shop.*")
    assert first.after["name"] == "pen", "a table without a class"


def test_rows_of_a_large_transaction() -> None:
    with BinlogCluster() as cluster, cluster.publisher_sync() as publisher:
        publisher.create_database("shop")
        columns = [column("id", "int", nullable=False), column("name", "longtext", nullable=False)]
        publisher.create_table("shop.texts", columns, primary_key=["id"])
        with publisher.transaction() as txn:
            for number in range(20):
                txn.insert("shop.texts", {"id": number, "name": "x" * 500_000})

        @dataclass
        class Text:
            id: int
            name: str

        with cluster.subscribe_sync(tables=["shop.texts"], start="oldest", row_type=Text) as stream:
            change = next(change for change in stream if isinstance(change, drainer.Transaction))
            assert change.large
            rows: list[Any] = list(change.rows)
        assert [row.after.id for row in rows] == [*range(20)]


@dataclass
class Misspelt:
    id: int
    nam: str


@dataclass
class OfText:
    id: str


@dataclass
class NotOptional:
    id: int
    made: datetime.date


class Strict(pydantic.BaseModel):
    id: Annotated[int, pydantic.Field(gt=1)]


class Whole(pydantic.BaseModel, extra="forbid"):
    id: int


class Colour(Enum):
    red = 1


@dataclass
class OfColour:
    size: Colour


def test_what_does_not_fit_is_said_and_ends_the_stream_before_it(cluster: BinlogCluster) -> None:
    cases: dict[type[Any], str] = {
        Misspelt: "Misspelt has the field nam, and table shop.items has no such column",
        OfText: "OfText.id is of type str, and column id of table shop.items is int, which comes as int",
        NotOptional: "NotOptional.made is not optional, and column made of table shop.items has NULL",
        OfColour: "OfColour.size is of type Colour, and column size of table shop.items has a value",
        Strict: "Strict does not take a row of table shop.items: id: Input should be greater than 1",
        Whole: "Whole does not take a row of table shop.items: name: Extra inputs are not permitted",
    }
    first, *_ = [change for change in cluster.changes() if isinstance(change, drainer.Transaction)]
    for cls, text in cases.items():
        with (
            case(cls.__name__),
            cluster.subscribe_sync(
                tables=["shop.items"], start=first.commit_ts - 1, stop="now", row_type=cls
            ) as stream,
        ):
            with pytest.raises(drainer.RowTypeError) as error:
                list(stream)
            assert text in error.value.message
            assert "pen" not in str(error.value)
            assert stream.position < first.commit_ts


def test_a_misspelt_table_is_said_at_the_start(cluster: BinlogCluster) -> None:
    given = {"tables": ["shop.*"], "start": "oldest", "stop": "now", "row_type": {"shop.itmes": OfText}}
    with (
        pytest.raises(drainer.NoSuchTable, match=r"shop\.itmes in row_type .*did you mean shop\.items\?"),
        cluster.subscribe_sync(**given),
    ):
        pass
    with cluster.subscribe_sync(**given, missing_ok=True) as stream:
        assert list(stream)
    with cluster.subscribe_sync(**given | {"row_type": {"SHOP.Items": OfText}}) as stream:
        assert next(stream)


async def test_nothing_that_follows_is_given(cluster: BinlogCluster) -> None:
    async with cluster.subscribe(
        tables=["shop.*"], start="oldest", row_type={"shop.items": OfText}
    ) as stream:
        assert [type(await anext(stream)) for _ in range(3)] == [drainer.Ddl] * 3
        with pytest.raises(drainer.RowTypeError) as first:
            await anext(stream)
        position = stream.position
        with pytest.raises(drainer.RowTypeError) as again:
            await anext(stream)
        assert again.value is first.value
        assert position == stream.position


def test_a_value_that_is_no_date() -> None:
    """Dates that no calendar has come as texts, which a field of type date does not take."""
    with BinlogCluster() as cluster, cluster.publisher_sync() as publisher:
        publisher.create_database("shop")
        publisher.create_table("shop.days", [column("day", "date")], unique=[["day"]])

        @dataclass
        class Day:
            day: datetime.date

        table = next(c for c in cluster.changes() if isinstance(c, drainer.Ddl) and c.after).after[0]
        types = RowTypes(Day)
        day = drainer.PartialDate("0000-00-00")
        with pytest.raises(drainer.RowTypeError, match=r"Day\.day is of type date, .* has a PartialDate"):
            types.row(drainer.Row(table, "insert", None, {"day": day}))


def test_what_is_no_class_for_rows() -> None:
    class Plain:
        id: int

    @dataclass
    class Lost:
        id: Nowhere  # type: ignore[name-defined]  # noqa: F821

    for given in (Plain, dict, 7, {"shop.items": int}):
        with case(str(given)), pytest.raises(ConfigError, match="no class for rows"):
            drainer.subscribe("127.0.0.1:2379", row_type=given)  # type: ignore[call-overload, unused-ignore]
    with pytest.raises(ConfigError, match="a type in Lost is not known"):
        drainer.subscribe("127.0.0.1:2379", row_type=Lost)


def test_a_field_with_a_default_may_be_missing(cluster: BinlogCluster) -> None:
    @dataclass
    class More:
        id: int
        note: str = "none"
        seen: list[int] = field(default_factory=list)
        twice: int = field(init=False, default=0)

    _, update = read(cluster, More)
    assert update.after == More(2)


def test_objects_that_cannot_be_published(cluster: BinlogCluster) -> None:
    @dataclass
    class Row:
        id: int | None
        nam: str = ""

    with cluster.publisher_sync() as publisher, publisher.transaction() as txn:
        with pytest.raises(pumpclient.InvalidDefinition, match="table items has no column nam"):
            txn.insert("shop.items", Row(3))
        with pytest.raises(pumpclient.InvalidDefinition, match=r"a row of table items: .* no class for rows"):
            txn.insert("shop.items", "pen")
        with pytest.raises(pumpclient.InvalidDefinition, match="the row has no column"):
            txn.insert("shop.items", Model(id=3, name="pen", price=1.5, tags=[]))

        @dataclass
        class Id:
            id: int | None

        with pytest.raises(pumpclient.InvalidValue, match="column id of table ids cannot hold this NULL"):
            txn.insert("shop.ids", Id(None))
        txn.insert("shop.ids", Id(uuid.UUID(int=8)))  # type: ignore[arg-type]
    assert [row["id"] for row in cluster.rows("shop.ids")] == [bytes(15) + b"\7", bytes(15) + b"\x08"]
