"""Row rules on encoded rows: what enters and leaves, what is masked, what functions make of rows."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drainer.changes.model import Row
from drainer.changes.row_reader import RowPlan
from drainer.config.options import DrainerConfig
from drainer.formats.pb import PbPlan
from drainer.mysql.literal.plan import SqlPlan
from drainer.stream.rules.row_rule import RowRule
from drainer.stream.rules.rule_history import RuleHistory
from drainer.stream.rules.rule_set import Rules, read_rules
from drainer.stream.translate.row_edit import RowEdit, row_edit
from drainer.stream.translate.row_filter import RowFilter
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion
from tests.common.rowcodec.tables import binary, column, index, key, table
from tests.common.rowcodec.tables import kind as of_type
from tests.drainer.stream.rules.where.typed_table import pairs
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.table_info import TableInfo

ORDERS = table(
    ("id", key("bigint")),
    ("total", of_type("decimal", flen=10, decimal=2)),
    ("email", of_type("varchar", flen=80)),
    ("phone", of_type("varchar", flen=20)),
    ("note", of_type("varchar", flen=20)),
    ("digest", binary("char", flen=40)),
)
KEYLESS = table(("total", of_type("int")), ("email", of_type("varchar", flen=80)), handle="rowid")
SALT = "0123456789abcdef"


def version(info: TableInfo) -> TableVersion:
    return TableVersion(info, "shop", "t", 1)


def edit(info: TableInfo, *rules: dict[str, Any]) -> RowEdit:
    names = {"db-name": "shop", "tbl-name": "t"}
    made = [RowRule.read(f"`row-rule` {number}", {**names, **rule}) for number, rule in enumerate(rules, 1)]
    return RowEdit(made, version(info))


@pytest.fixture
def salt(tmp_path: Path) -> str:
    path = tmp_path / "salt"
    path.write_text(SALT + "\n")
    return str(path)


def hashed(text: str) -> str:
    return hmac.digest(SALT.encode(), text.encode(), hashlib.sha256).hex()[:32]


class Rows:
    """Rows of a table, encoded and read again."""

    def __init__(self, info: TableInfo) -> None:
        self.encoder, self.plan = RowEncoder(info), compile_table(info)
        self.names = [one.name for one in self.plan.columns]

    def of(self, kind: int, old: dict[str, Any] | None, new: dict[str, Any] | None) -> bytes:
        if kind == INSERT:
            return self.encoder.insert(new or {}, rowid=7)
        if kind == DELETE:
            return self.encoder.delete(old or {}, rowid=7)
        return self.encoder.update(old or {}, new or {}, rowid=7)

    def read(self, kind: int, row: bytes) -> tuple[Any, Any]:
        """Old and new image."""
        if kind == INSERT:
            return None, dict(zip(self.names, self.plan.decode_insert(row), strict=True))
        if kind == DELETE:
            return dict(zip(self.names, self.plan.decode_delete(row), strict=True)), None
        old, new = self.plan.decode_update(row)
        return dict(zip(self.names, old, strict=True)), dict(zip(self.names, new, strict=True))


def order(total: str, **more: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "total": total,
        "email": "a@b.c",
        "phone": "0123456789",
        "note": None,
        "digest": None,
        **more,
    }


# -- where ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("info", [ORDERS, KEYLESS])
def test_what_enters_is_an_insert_and_what_leaves_a_delete(info: TableInfo) -> None:
    rows, edited = Rows(info), edit(info, {"where": "total >= 10"})
    names = rows.names
    images = {
        total: {name: value for name, value in order(total).items() if name in names}
        for total in ("9", "10", "11")
    }
    for old, new in itertools.product(images, repeat=2):
        row = rows.of(UPDATE, images[old], images[new])
        was, now = int(old) >= 10, int(new) >= 10
        event = edited.event(UPDATE, row, 5)
        if was and now:
            assert event == (UPDATE, row)
        elif was:
            assert event == (DELETE, rows.of(DELETE, images[old], None))
        elif now:
            assert event is not None
            assert event[0] == INSERT
            assert rows.read(*event)[1] == rows.read(UPDATE, row)[1]
        else:
            assert event is None
    for total, image in images.items():
        inside = int(total) >= 10
        for kind in (INSERT, DELETE):
            row = rows.of(kind, image, image)
            assert edited.event(kind, row, 5) == ((kind, row) if inside else None)


def test_all_rules_of_a_table_hold_together() -> None:
    rows = Rows(ORDERS)
    edited = edit(
        ORDERS, {"where": "total >= 10"}, {"where": "note IS NULL"}, {"where": "before.total <> after.total"}
    )
    pairs = itertools.product(
        ((total, note) for total in ("9", "10", "11") for note in (None, "x")), repeat=2
    )
    for (total, note), (new_total, new_note) in pairs:
        row = rows.of(UPDATE, order(total, note=note), order(new_total, note=new_note))
        was, now = (int(total) >= 10 and note is None), (int(new_total) >= 10 and new_note is None)
        wanted = {(True, True): UPDATE, (True, False): DELETE, (False, True): INSERT}.get((was, now))
        event = edited.event(UPDATE, row, 5)
        assert (None if event is None else event[0]) == (wanted if total != new_total else None)
    assert edited.event(INSERT, rows.of(INSERT, None, order("11")), 5) is None  # nothing before: NULL


def test_what_replicates_is_the_set_after_every_change() -> None:
    """Applied one by one, the events leave downstream what the condition takes of upstream."""
    draw = random.Random(5)
    rows, edited = Rows(ORDERS), edit(ORDERS, {"where": "total BETWEEN 10 AND 20 OR note = 'keep'"})
    upstream: dict[int, dict[str, Any]] = {}
    downstream: dict[int, dict[str, Any]] = {}
    for _ in range(3000):
        number = draw.randrange(12)
        old = upstream.get(number)
        new = order(str(draw.randrange(30)), id=number, note=draw.choice([None, "keep", "x"]))
        kind = INSERT if old is None else draw.choice((UPDATE, DELETE))
        row = rows.of(kind, old, new)
        upstream.pop(number, None)
        if kind != DELETE:
            upstream[number] = new
        event = edited.event(kind, row, 5)
        if event is not None:
            before, after = rows.read(*event)
            if before is not None:
                assert downstream.pop(before["id"]) == before
            if after is not None:
                assert after["id"] not in downstream
                downstream[after["id"]] = after
        inside = {
            number
            for number, one in upstream.items()
            if 10 <= int(one["total"]) <= 20 or one["note"] == "keep"
        }
        assert set(downstream) == inside


# -- rules that change ------------------------------------------------------------------------------------

SETS: dict[str, tuple[dict[str, str], ...]] = {
    "all": (),
    "total": ({"where": "total >= 10"},),
    "note": ({"where": "note = 'in'"},),
    "both": ({"where": "total >= 10"}, {"where": "note = 'in'"}),
    "gone column": ({"where": "elsewhere = 1"},),
}
TESTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "all": lambda image: True,
    "total": lambda image: float(image["total"]) >= 10,
    "note": lambda image: image["note"] == "in",
    "both": lambda image: float(image["total"]) >= 10 and image["note"] == "in",
}


def rules_after(*names: str) -> Rules:
    """The last of some sets of rules, each stored by another life."""
    history = RuleHistory.since(0, rules_of(names[0]))
    for ts, name in enumerate(names[1:], 1):
        history = RuleHistory.from_json(history.to_json()).followed_by(ts, rules_of(name))
    return RuleHistory.from_json(history.to_json()).last


def rules_of(name: str) -> Rules:
    named = tuple({"db-name": "shop", "tbl-name": "t", **rule} for rule in SETS[name])
    return read_rules(replace(DrainerConfig(), row_rule=named))


def every_change(images: list[dict[str, Any] | None]) -> list[tuple[Any, Any]]:
    return [
        (old, new)
        for old, new in itertools.product(images, repeat=2)
        if old is not new and (old is None or new is None or old != new)
    ]


def test_a_row_is_as_the_rules_of_now_say_once_it_changes_whatever_they_were_before() -> None:
    """Every history of three sets of rules, every row, and every change of it, its key's among them, in each
    era. What goes out may be repeated, and may be about rows that are not there."""
    rows = Rows(ORDERS)
    images: list[dict[str, Any] | None] = [None] + [
        order(total, note=note, id=number)
        for total in ("9.00", "10.00")
        for note in ("in", "x")
        for number in (1, 2)
    ]
    changes = every_change(images)
    kinds = [INSERT if old is None else DELETE if new is None else UPDATE for old, new in changes]
    encoded = [rows.of(kind, *change) for kind, change in zip(kinds, changes, strict=True)]
    sent: dict[tuple[str, ...], list[tuple[Any, Any] | None]] = {}

    def events(names: tuple[str, ...]) -> list[tuple[Any, Any] | None]:
        if names not in sent:
            edited = row_edit(rules_after(*names), version(ORDERS))
            found = [
                (kind, row) if edited is None else edited.event(kind, row, 5)
                for kind, row in zip(kinds, encoded, strict=True)
            ]
            sent[names] = [None if event is None else rows.read(*event) for event in found]
        return sent[names]

    def follow(names: tuple[str, ...], era: int, image: Any, downstream: dict[int, Any]) -> None:
        for (old, new), event in zip(changes, events(names[: era + 1]), strict=True):
            if old is not image:
                continue
            there = dict(downstream)
            if event is not None:
                before, after = event
                if before is not None:
                    there.pop(before["id"], None)
                if after is not None:
                    there[after["id"]] = after
            wanted = [] if new is None or not TESTS[names[era]](new) else [new]
            assert list(there.values()) == wanted, (names[: era + 1], old, new)
            if era + 1 < len(names):
                follow(names, era + 1, new, there)
                follow_unchanged(names, era + 2, new, there)

    def follow_unchanged(names: tuple[str, ...], era: int, image: Any, there: dict[int, Any]) -> None:
        """Nothing changes in the era before."""
        if era < len(names):
            follow(names, era, image, there)

    for names in itertools.product(TESTS, repeat=3):
        follow(names, 0, None, {})


def test_rows_that_no_rules_ever_let_through_stay_where_they_are() -> None:
    rows = Rows(ORDERS)
    edited = row_edit(rules_after("both", "total", "note"), version(ORDERS))
    assert edited is not None
    for old, new in (("9", "9"), ("9", "11")):
        row = rows.of(UPDATE, order(old, note="x"), order(new, note="y"))
        assert edited.event(UPDATE, row, 5) is None
    assert edited.event(DELETE, rows.of(DELETE, order("9", note="x"), None), 5) is None


def test_what_an_earlier_rule_said_of_a_column_that_is_gone_is_not_known() -> None:
    rows = Rows(ORDERS)
    edited = row_edit(rules_after("gone column", "note"), version(ORDERS))
    assert edited is not None
    row = rows.of(DELETE, order("9", note="x"), None)
    assert edited.event(DELETE, row, 5) == (DELETE, row)


def test_a_table_without_a_key_is_left_alone() -> None:
    """Its rows are found by all their values: another row may be taken for the one that is meant."""
    edited = row_edit(rules_after("all", "total"), version(KEYLESS))
    assert edited is not None
    row = Rows(KEYLESS).of(DELETE, {"total": 9, "email": "x"}, None)
    assert edited.event(DELETE, row, 5) is None


# -- masks ------------------------------------------------------------------------------------------------


def test_masks_change_their_columns_and_no_other_byte(salt: str) -> None:
    rows = Rows(ORDERS)
    mask = {"email": "hash", "phone": "keep-last 4", "note": "null", "digest": "hash"}
    edited = edit(ORDERS, {"mask": mask, "salt-file": salt})
    old, new = order("9", note="x", digest=b"secret"), order("10", email="d@e.f", phone="12", digest=None)
    wanted_old = {**old, "email": hashed("a@b.c"), "phone": "******6789", "note": None}
    wanted_old["digest"] = hashed("secret".ljust(40, "\0")).encode().ljust(40, b"\0")
    wanted_new = {**new, "email": hashed("d@e.f"), "phone": "**"}
    for kind in (INSERT, UPDATE, DELETE):
        row = rows.of(kind, old, new)
        event = edited.event(kind, row, 5)
        assert event == (kind, rows.of(kind, wanted_old, wanted_new))


def test_rows_in_another_order_are_masked_alike() -> None:
    rows, edited = (
        Rows(ORDERS),
        edit(ORDERS, {"mask": {"email": {"value": "hidden"}, "note": {"value": "-"}}}),
    )
    old, new = order("9", note="secret"), order("10", email=None)
    images = [rows.of(DELETE, image, None) for image in (old, new)]
    odd_old, odd_new = (b"".join(reversed(pairs(image))) for image in images)
    hidden = {"email": "hidden", "note": "-"}
    for kind, row in ((DELETE, odd_old), (UPDATE, odd_old + odd_new), (INSERT, b"\x08\x02" + odd_old[:-4])):
        event = edited.event(kind, row, 5)
        assert event is not None
        before, after = rows.read(*event)
        assert (before or after)["total"] == "9.00"
        assert {**(before or after), **hidden} == (before or after)
        if kind == UPDATE:
            assert (after["email"], after["note"]) == (None, None)


def test_hashed_keys_keep_rows_apart_and_leave_no_trace_of_the_value(salt: str) -> None:
    clustered = table(
        ("email", key("varchar", flen=80, collate="utf8mb4_general_ci")), ("n", of_type("int")),
        handle="common", indexes=(index(1, ("email", 0), primary=True),),
    )  # fmt: skip
    rows, edited = Rows(clustered), edit(clustered, {"mask": {"email": "hash"}, "salt-file": salt})
    old, new = {"email": "Ann@b.c", "n": 1}, {"email": "Bob@b.c", "n": 1}
    for kind in (INSERT, UPDATE, DELETE):
        event = edited.event(kind, rows.of(kind, old, new), 5)
        masked_old, masked_new = ({**one, "email": hashed(str(one["email"]))} for one in (old, new))
        assert event == (kind, rows.of(kind, masked_old, masked_new))


def test_generated_columns_made_of_a_masked_one_are_null_in_the_row() -> None:
    info = table(
        ("id", key("bigint")),
        ("email", of_type("varchar", flen=80)),
        column(
            3,
            "domain",
            of_type("varchar", flen=80),
            generated="substring_index(`email`, _utf8'@', -1)",
            generated_stored=True,
        ),
        column(4, "twice", of_type("int"), generated="`id` * 2", generated_stored=True),
    )
    rows, edited = Rows(info), edit(info, {"mask": {"email": "keep-last 1"}})
    image = {"id": 1, "email": "a@secret", "domain": "secret", "twice": 2}
    hidden = {**image, "email": "*******t", "domain": None}
    for kind in (INSERT, UPDATE, DELETE):
        event = edited.event(kind, rows.of(kind, image, image), 5)
        assert event is not None
        assert b"secret" not in event[1]
        if kind != INSERT:
            assert event == (kind, rows.of(kind, hidden, hidden))


UNIQUE = table(
    ("id", key("bigint")),
    ("email", of_type("varchar", flen=80)),
    ("code", of_type("varchar", flen=20, not_null=True)),
    ("doc", of_type("json")),
    ("wide", of_type("varchar", flen=80)),
    column(6, "low", of_type("varchar", flen=80), generated="lower(`wide`)"),
    column(7, "free", of_type("varchar", flen=80)),
    indexes=(index(1, ("email", 1)), index(2, ("code", 2, 10)), index(3, ("low", 5))),
)


@pytest.mark.parametrize(
    ("mask", "what"),
    [
        ({"id": "null"}, "it is a column of the primary key"),
        ({"id": {"value": 1}}, "it is a column of the primary key"),
        ({"id": "hash"}, "not a text or binary string"),
        ({"email": "keep-last 4"}, "it is a column of the unique index i1"),
        ({"email": {"value": "x"}}, "it is a column of the unique index i1"),
        ({"code": "hash"}, "holds its first 10 characters only"),
        ({"code": "null"}, "NOT NULL"),
        ({"doc": "keep-last 2"}, "not a text"),
        ({"free": {"value": "x" * 81}}, "81 characters"),
        ({"wide": "null"}, "a generated column of the unique index i3 is made of it"),
        ({"nothing": "null"}, "names column nothing, which shop.t does not have"),
        ({"low": "null"}, "a generated column"),
        ({"doc": {"value": "{"}}, "none of the column's"),
    ],
)
def test_masks_that_a_column_cannot_have(mask: dict[str, Any], what: str, salt: str) -> None:
    rule = {"mask": mask, **({"salt-file": salt} if "hash" in mask.values() else {})}
    with pytest.raises(ConfigError) as raised:
        edit(UNIQUE, rule)
    assert what in raised.value.message
    assert "`row-rule` 1" in raised.value.message
    assert "shop.t" in raised.value.message
    assert SALT not in str(raised.value)


def test_a_short_column_has_no_room_for_a_hash(salt: str) -> None:
    with pytest.raises(ConfigError, match="32 characters, the column has room for 20"):
        edit(ORDERS, {"mask": {"phone": "hash"}, "salt-file": salt})


def test_a_nullable_unique_column_may_be_null_or_hashed(salt: str) -> None:
    rows = Rows(UNIQUE)
    image = {"id": 1, "email": "a@b", "code": "c", "doc": None, "wide": None, "low": None, "free": None}
    row = rows.of(INSERT, None, image)
    for how, wanted in (("null", None), ("hash", hashed("a@b"))):
        rule = {"mask": {"email": how}, **({"salt-file": salt} if how == "hash" else {})}
        event = edit(UNIQUE, rule).event(INSERT, row, 5)
        assert event is not None
        assert rows.read(*event)[1]["email"] == wanted


def test_two_masks_of_one_column_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"shop.t.note has two masks: `row-rule` 1: mask of note and `row-rule` 2"
    ):
        edit(ORDERS, {"mask": {"note": "null"}}, {"mask": {"NOTE": "keep-last 2"}})


def test_conditions_see_what_masks_hide() -> None:
    rows, edited = Rows(ORDERS), edit(ORDERS, {"mask": {"note": "null"}}, {"where": "note = 'x'"})
    event = edited.event(INSERT, rows.of(INSERT, None, order("1", note="x")), 5)
    assert event is not None
    assert rows.read(*event)[1] == {**order("1"), "total": "1.00"}


def test_edited_rows_are_rows_for_every_destination() -> None:
    """Also where generated columns, virtual ones too, are in some images and not in others."""
    info = table(
        ("id", key("bigint")),
        ("email", of_type("varchar", flen=80)),
        column(3, "low", of_type("varchar", flen=80), generated="lower(`email`)"),
        column(4, "up", of_type("varchar", flen=80), generated="upper(`email`)", generated_stored=True),
        ("n", of_type("int")),
    )
    of_table = version(info)
    rows, edited = Rows(info), edit(info, {"where": "n > 5", "mask": {"email": "keep-last 1"}})
    pb, sql, changes = PbPlan(of_table), SqlPlan(info), RowPlan(of_table)
    images = [{"id": 1, "email": "a@b", "low": "a@b", "up": "A@B", "n": n} for n in (5, 6)]
    for sort in (INSERT, UPDATE, DELETE):
        for old, new in itertools.product(images, repeat=2):
            event = edited.event(sort, rows.of(sort, old, new), 5)
            if event is None:
                continue
            found = changes.read[event[0]](event[1])
            for image in (found.before, found.after):
                assert image is None or (image["id"], image["email"]) == (1, "**b")
            (pb.insert, pb.update, pb.delete)[event[0]](event[1])
            key_of = {
                INSERT: sql.insert_key,
                DELETE: sql.delete_key,
                UPDATE: lambda row: sql.update_keys(row)[1],
            }
            assert key_of[event[0]](event[1]) == b"1"
            if event[0] == INSERT:
                assert sql.insert_literals(event[1]) == b"(1,'**b',6)"


# -- functions --------------------------------------------------------------------------------------------


def untouched(row: Row) -> Row:
    return row


def lowered(row: Row) -> Row | None:
    """Lower-case phones, no rows of draft orders."""
    for image in (row.before, row.after):
        if image is not None:
            if image["note"] == "draft":
                return None
            image["email"] = image["email"] and image["email"].lower()
            image["note"] = "seen"
    return row


def broken(row: Row) -> Row:
    raise KeyError("no such thing")


def wrong(row: Row) -> Any:
    return {"id": 1}


def null_key(row: Row) -> Row:
    assert row.after is not None
    row.after["id"] = None
    return row


def unfit(row: Row) -> Row:
    assert row.after is not None
    row.after["total"] = "many"
    return row


def more(row: Row) -> Row:
    assert row.after is not None
    row.after["surprise"] = 1
    return row


def test_functions_see_rows_and_change_them() -> None:
    rows = Rows(ORDERS)
    as_is, edited = (
        edit(ORDERS, {"python": f"{__name__}:untouched"}),
        edit(ORDERS, {"python": f"{__name__}:lowered"}),
    )
    old, new = order("9", email="A@B"), order("10", email="C@D", note="x")
    seen_old, seen_new = (
        {**one, "email": email, "note": "seen"} for one, email in ((old, "a@b"), (new, "c@d"))
    )
    for kind in (INSERT, UPDATE, DELETE):
        row = rows.of(kind, old, new)
        event = as_is.event(kind, row, 5)
        assert event is not None
        assert event[1] is row
        assert edited.event(kind, row, 5) == (kind, rows.of(kind, seen_old, seen_new))
    assert edited.event(INSERT, rows.of(INSERT, None, order("1", note="draft")), 5) is None


@pytest.mark.parametrize(
    ("function", "what"),
    [
        ("broken", "raised KeyError: 'no such thing'"),
        ("wrong", "made dict of insert"),
        ("null_key", "gave None for id, which is NOT NULL"),
        ("unfit", "gave a str for total that does not fit"),
        ("more", "gave a row with other columns: surprise"),
    ],
)
def test_a_function_that_fails_stops_with_rule_table_and_transaction(function: str, what: str) -> None:
    edited = edit(ORDERS, {"where": "id > 0"}, {"python": f"{__name__}:{function}"})
    with pytest.raises(ConfigError) as raised:
        edited.event(INSERT, Rows(ORDERS).of(INSERT, None, order("1")), 4711)
    message = raised.value.message
    assert message.startswith(f"`row-rule` 2: python: {__name__}:{function} {what}")
    assert message.endswith("for a row of shop.t in the transaction with commit_ts 4711")


# -- runs -------------------------------------------------------------------------------------------------


def test_ordinals_are_those_of_the_payload() -> None:
    rows = Rows(ORDERS)
    edited = edit(ORDERS, {"where": "total >= 10"})
    images = [order("9"), order("10")]
    for length in range(5):
        for sequence in itertools.product((INSERT, UPDATE, DELETE), (0, 1), repeat=length):
            kinds, inside = sequence[::2], sequence[1::2]
            encoded = [
                rows.of(kind, images[new], images[new]) for kind, new in zip(kinds, inside, strict=True)
            ]
            row_filter = RowFilter(1, version(ORDERS), frozenset({DELETE}), edit=edited)
            assert not row_filter.plain
            seen = [
                (events.first_ordinal + place, kind, row)
                for events in row_filter.passed(kinds, encoded, 100, 5)
                for place, (kind, row) in enumerate(zip(events.kinds, events.rows, strict=True))
            ]
            wanted = [
                (100 + place, kind, encoded[place])
                for place, (kind, new) in enumerate(zip(kinds, inside, strict=True))
                if new and kind != DELETE
            ]
            assert seen == wanted


def test_a_damaged_row_is_named_with_its_transaction() -> None:
    row_filter = RowFilter(1, version(ORDERS), edit=edit(ORDERS, {"where": "total > 1"}))
    with pytest.raises(Corruption, match="transaction with commit_ts 77: row of table t"):
        list[TableEvents](row_filter.passed((INSERT,), [b"\x80"], 0, 77))
