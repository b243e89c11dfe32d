"""DDL of every kind that changes what rows hold, or what a new row gets, as functions of an `Upstream`

What rows hold then is said by recordings of TiDB (`tests/golden/conversions`), by the definition, or where
neither has it by TiDB's own arithmetic: in which partition a row is.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any, Final

from tests.drainer.ddl.generated.upstream import (
    OTHERS,
    SCHEMA,
    TRICKY,
    UTF8MB4,
    Document,
    Table,
    Upstream,
    column,
    row,
)
from tests.drainer.support import conversions
from tests.drainer.support.table_maker import NOT_NULL, ON_UPDATE, UNSIGNED, kind, name
from tidb_binlog import table_info as ti
from tidb_binlog.ddl_job import ActionType as Do
from tidb_binlog.table_info import ColumnKind

Make = Callable[[Upstream], None]
TEXTS: Final = (
    ("utf8mb4", "utf8mb4_bin", "日本😀"),
    ("utf8mb4", "utf8mb4_general_ci", "日本😀"),
    ("utf8mb4", "utf8mb4_0900_ai_ci", "Straße"),
    ("utf8", "utf8_bin", "日本"),
    ("latin1", "latin1_bin", "é"),
    ("ascii", "ascii_bin", "a"),
    ("gbk", "gbk_chinese_ci", "日本"),
)

# Columns -------------------------------------------------------------------------------------------------

WHEN, ZERO = "2019-07-01 22:09:09.123456", "0000-00-00 00:00:00.000000"
Spec = tuple[str, Document, str | None, str, Any]


NARROW: Final = ("latin1", "ascii")
"""Character sets without a member: MariaDB has it with question marks."""


def specs() -> Iterator[Spec]:
    """(label, type, default, what a NOT NULL column without one gives old rows, another value)."""
    for tp in (ti.TINY, ti.SHORT, ti.INT24, ti.LONG, ti.LONGLONG):
        yield f"int {tp}", kind(tp, 20), "-7", "0", 99
    yield "unsigned", kind(ti.LONGLONG, 20, Flag=UNSIGNED), str(2**64 - 1), "0", 2**63
    yield (
        "decimal",
        kind(ti.DECIMAL, 65, 30),
        "123456789.000000000000000000000000000001",
        "0",
        Decimal("-0.5"),
    )
    yield "float", kind(ti.FLOAT, 12), "1.1", "0", 0.25
    yield "double", kind(ti.DOUBLE, 22), "15000000000", "0", 1e300
    yield "bit", kind(ti.BIT, 64, Flag=UNSIGNED), "\x02\x03'\\\x05\x06\x07\x08", "\0", 2**64 - 1
    for charset, collate, text in TEXTS:
        of = {"Charset": charset, "Collate": collate}
        elems = ["b", "a'b", "é\\"][: 3 if charset.startswith("utf8") else 2]
        yield f"varchar {collate}", kind(ti.VARCHAR, 30, **of), TRICKY[len(elems) < 3 :], "", text
        yield f"char {collate}", kind(ti.STRING, 9, **of), " a", "", text
        yield f"enum {collate}", kind(ti.ENUM, 3, **of, Elems=elems), "a'b", "b", 0
        yield f"set {collate}", kind(ti.SET, 9, **of, Elems=elems), "b,a'b", "", 0
        yield f"text {collate}", kind(ti.BLOB, 65535, **of), None, "", text
    for charset in NARROW:
        of = {"Charset": charset, "Collate": f"{charset}_bin", "Elems": ["b", "日本"]}
        yield f"enum of {charset}", kind(ti.ENUM, 9, **of), "日本", "b", 1
        yield f"set of {charset}", kind(ti.SET, 9, **of), "b,日本", "", 1
    yield "enum binary", kind(ti.ENUM, 1, Elems=["x", "X"]), "X", "x", 1
    yield "binary", kind(ti.STRING, 4), "ab\0\0", "\0\0\0\0", b"\xff\0\x27\x5c"
    yield "varbinary", kind(ti.VARCHAR, 9), "a' \\", "", b"\0\xfe "
    yield "blob", kind(ti.BLOB, 65535), None, "", b"\xff\0"
    yield "json", kind(ti.JSON), None, "null", '{"a": [1, "é"]}'
    yield "date", kind(ti.DATE, 10), "2069-12-31", ZERO[:10], "2021-02-30"
    yield "time", kind(ti.TIME, 13, 2), "-10:11:12.13", "00:00:00.00", "838:59:59.00"
    yield "year", kind(ti.YEAR, 4, Flag=UNSIGNED | 64), "1970", "0000", 2155
    for fsp, tp in itertools.product((0, 3, 6), (ti.DATETIME, ti.TIMESTAMP)):
        size = 19 + fsp + (fsp > 0)
        for default in (f"2020-06-01 04:00:00{WHEN[19:size]}", "CURRENT_TIMESTAMP"):
            yield f"{tp} {default}", kind(tp, size, fsp), default, ZERO[:size], WHEN[:size]


SPECS: Final = list(specs())


def defined(spec: Spec, flag: int, *, with_default: bool) -> Document:
    _, type_, default, zero, value = spec
    found = column("v", type_, flag, default if with_default else None)
    found["origin_default"] = found["default"] or (zero if flag & NOT_NULL else None)
    if str(found["default"]).startswith("CURRENT"):
        found["origin_default"] = value
    for word in ("default", "origin_default") if type_["Tp"] == ti.BIT else ():
        bits = (found[word] or "").encode("latin-1")
        found[f"{word}_bit"] = None if found[word] is None else base64.b64encode(bits).decode()
    return found


def named(spec: Spec) -> list[str]:
    return ["named"] if "0900" in spec[0] or spec[0].endswith(NARROW) else []


def added(up: Upstream, spec: Spec, flag: int, with_default: bool) -> None:
    may = named(spec) + (["named"] if flag & ON_UPDATE and not with_default else [])  # MariaDB gives it one
    table = up.create(f"add {spec[0]}, flag {flag}, default {with_default}", may=may)
    up.insert(table, map(row, range(3)))
    new = {**defined(spec, flag, with_default=with_default), "id": up.next_id()}
    place = (1, 4, 1 + len(OTHERS))[len(up.tables) % 3]
    up.alter(table, Do.ADD_COLUMN, lambda document: document["cols"].insert(place, new))
    up.go_on(table, row(7, v=spec[4]), *([] if flag else [row(8, v=None)]))


def adds() -> Iterator[Make]:
    for spec in SPECS:
        strict = NOT_NULL | ON_UPDATE if spec[2] == "CURRENT_TIMESTAMP" else NOT_NULL
        for flag, with_default in itertools.product((0, strict), (False, True)):
            if spec[2] is not None or not with_default:
                yield partial(added, spec=spec, flag=flag, with_default=with_default)


def given(up: Upstream, spec: Spec, action: int, *, drops: bool = False) -> None:
    """A default takes the place of another one, or goes."""
    old, new = (defined(spec, 0, with_default=one) for one in (drops, not drops))
    if not drops and spec[1]["Tp"] in ti.STRING_TYPES:
        old["default"] = "q"
    table = up.create(f"default {spec[0]} by {action}, drops {drops}", old, may=named(spec))
    up.insert(table, [row(0, v=spec[4]), row(1, v=None)])
    change = {word: new.get(word) for word in ("default", "default_bit")}
    up.alter(table, action, lambda document: document["cols"][-1].update(change))
    up.go_on(table, row(7, v=spec[4]))


def computed(up: Upstream, first: str | None) -> None:
    table = up.create(
        f"a computed default after {first}", column("v", kind(ti.VARCHAR, 9, **UTF8MB4), 0, first)
    )
    up.insert(table, [row(0), row(1)])
    change = {"default": "concat(_utf8mb4'é', 'b')", "default_is_expr": True}
    up.alter(table, Do.SET_DEFAULT_VALUE, lambda document: document["cols"][-1].update(change))
    up.go_on(table)
    place = f"{SCHEMA}.{table.name}"  # MySQL has no DEFAULT(v) of an expression
    table.answers[f"INSERT INTO {place} (id) VALUES (99); SELECT v FROM {place} WHERE id = 99"] = "éb"


def defaults() -> Iterator[Make]:
    for spec in SPECS:
        if spec[2] is not None:
            for action in (Do.SET_DEFAULT_VALUE, Do.MODIFY_COLUMN):
                yield partial(given, spec=spec, action=action)
            yield partial(given, spec=spec, action=Do.SET_DEFAULT_VALUE, drops=True)
    for first in (None, "z"):
        yield partial(computed, first=first)


# Types ---------------------------------------------------------------------------------------------------

PAIRS: Final = {
    pair: list(cases)
    for pair, cases in itertools.groupby(conversions.cases(), key=lambda one: (one.source, one.target))
}
UNLIKE: Final = {
    *((one, f"{to} unsigned") for one in ("double", "float") for to in ("tinyint", "int")),
    *((one, "timestamp") for one in ("date", "datetime(3)")),
}
"""TiDB stores what no type holds."""


def value_after(case: conversions.Case) -> Any:
    """What is recorded, as rows are encoded."""
    type_, shown = conversions.field_type(case.target), case.after
    if shown is None or case.hex is None:
        return None
    match type_.kind:
        case ColumnKind.SIGNED | ColumnKind.UNSIGNED | ColumnKind.BIT:
            number = int(case.hex, 16)
            return number - (1 << 64) if type_.kind is ColumnKind.SIGNED and number >> 63 else number
        case ColumnKind.TEXT | ColumnKind.BINARY:
            return bytes.fromhex(case.hex)
        case ColumnKind.FLOAT:
            return struct.unpack("<f", struct.pack("<f", float(shown)))[0]
        case ColumnKind.DOUBLE | ColumnKind.YEAR:
            return float(shown) if type_.kind is ColumnKind.DOUBLE else int(shown)
        case ColumnKind.ENUM:
            return type_.elems.index(shown) + 1 if shown else 0
    return shown


def retyped(up: Upstream, pair: tuple[str, str]) -> None:
    was, to = (column("v", conversions.field_type(one).to_json()) for one in pair)
    table = up.create(f"{pair[0]} to {pair[1]}", was)
    up.insert(table, [row(n, v=conversions.value_before(one)) for n, one in enumerate(PAIRS[pair])])
    values = table.values()
    to["id"] = up.next_id()
    utc = {
        "reorg_meta": {"sql_mode": 0, "location": {"name": "UTC", "offset": 0}}
    }  # in which it was recorded
    session = utc if "timestamp" in " ".join(pair) else {}
    up.alter(table, Do.MODIFY_COLUMN, lambda document: document["cols"].__setitem__(-1, to), **session)
    up.convert(table, {n: {**values[n], "v": value_after(one)} for n, one in enumerate(PAIRS[pair])})
    up.go_on(table)


def types() -> Iterator[Make]:
    return (partial(retyped, pair=pair) for pair in PAIRS if pair not in UNLIKE)


# Expressions ---------------------------------------------------------------------------------------------


def generated(up: Upstream, expression: str, collate: str, value: str) -> None:
    of = {"Charset": collate.partition("_")[0], "Collate": collate}
    lacks = "日" in expression or (collate == "latin1_bin" and "concat" not in expression)
    may = ["named"] if lacks else []
    table = up.create(f"{expression} of {collate}", column("v", kind(ti.VARCHAR, 20, **of)), may=may)
    up.insert(table, [row(0, v="é")])
    made = column("g", kind(ti.VARCHAR, 60, **UTF8MB4), generated_expr_string=expression, id=up.next_id())
    up.alter(table, Do.ADD_COLUMN, lambda document: document["cols"].append(made))
    table.answers[f"SELECT g FROM {SCHEMA}.{table.name}"] = value


def viewed(up: Upstream, select: str, text: str, value: object) -> None:
    """The text that comes was read without the session's sql_mode; the definition was not."""
    table = up.create(f"view {select}")
    up.insert(table, [row(1)])
    view = {
        "view_algorithm": 0,
        "view_security": 1,
        "view_select": f"{select} FROM `{SCHEMA}`.`{table.name}`",
    }
    made = {"id": up.next_id(), "name": name(f"v{table.name}"), "state": 5, "index_info": [], "view": view}
    seen = Table("", {**made, "cols": [{**column("x", kind(ti.VARCHAR, 40, **UTF8MB4)), "id": 1}]})
    up.run(Do.CREATE_VIEW, seen, f"CREATE VIEW `{seen.name}` (`x`) AS {text} FROM `{table.name}`")
    table.answers[f"SELECT x FROM {SCHEMA}.{seen.name}"] = value


def texts() -> Iterator[Make]:
    raw = "é".encode()
    made = {"length": "2", "hex": raw.hex().upper(), "md5": hashlib.md5(raw).hexdigest()}
    for collate in ("utf8mb4_bin", "latin1_bin"):
        for function, value in made.items():
            yield partial(generated, expression=f"{function}(`v`)", collate=collate, value=value)
        yield partial(generated, expression="concat(`v`, _utf8mb4'é''')", collate=collate, value="éé'")
        yield partial(generated, expression="concat(`v`, _utf8mb4'''')", collate=collate, value="é'")
        for charset in ("latin1", "ascii", "utf8", "gbk"):  # of the session that wrote it
            last = f"right(concat(`v`, _{charset}'日本'), 1)"
            yield partial(generated, expression=last, collate=collate, value="本")
    for charset in ("latin1", "utf8mb4", "binary"):
        expression = f"length(concat(_{charset}'日本', left(`v`, 0)))"
        yield partial(generated, expression=expression, collate="utf8mb4_bin", value="6")
    yield partial(viewed, select="SELECT `w` AS `x`", text="SELECT 'w'", value=1)
    for charset in ("UTF8MB4", "LATIN1", "UTF8"):
        select = f"SELECT RIGHT(CONCAT(`w`, _{charset}'é'), 2) AS `x`"
        yield partial(viewed, select=select, text="SELECT `w` OR 'é'", value="1é")


# Partitions ----------------------------------------------------------------------------------------------


def below(limits: tuple[Any, ...], value: Any) -> int:
    return next((n for n, limit in enumerate(limits) if value is None or value < limit), len(limits))


IT: Final = "it'sé"
Layout = tuple[Document, Document, list[Any], Callable[[Any], int]]
LAYOUTS: Final[dict[str, Layout]] = {
    "range": (
        {"type": 1, "expr": "YEAR(`p`)", "less_than": [["2010"], ["2020"], ["MAXVALUE"]]},
        kind(ti.DATE, 10),
        ["2009-12-31", "2010-01-01", "2019-12-31", "2020-01-01", ZERO[:10], None],
        partial(below, ("2010", "2020")),
    ),
    "range columns": (
        {"type": 1, "columns": [name("p")], "less_than": [["'b'"], ["_utf8mb4'it''sé'"], ["MAXVALUE"]]},
        kind(ti.VARCHAR, 20, **UTF8MB4),
        ["B", "a", "b", "it", "it's", IT, "it'sö", "z", None],
        partial(below, ("b", IT)),
    ),
    "list": (
        {"type": 3, "expr": "`p`", "in_values": [[["1"], ["2"]], [["3"], ["NULL"]], [["4"], ["-5"]]]},
        kind(ti.LONG, 11),
        [1, 2, 3, 4, -5, None],
        {1: 0, 2: 0, 3: 1, None: 1, 4: 2, -5: 2}.__getitem__,
    ),
    **{
        f"hash {number}": (
            {"type": 2, "expr": "`p`"},
            kind(tp, 20, Flag=flag),
            [*range(-4 if tp == ti.LONG else 0, 5), *more],
            lambda p: abs((p or 0) - (2**64 if (p or 0) >= 2**63 else 0)) % 3,
        )
        for number, (tp, flag, more) in enumerate(
            [
                (ti.LONG, 0, [None]),
                (ti.LONG, NOT_NULL, []),
                (ti.LONGLONG, UNSIGNED | NOT_NULL, [2**63, 2**63 + 1, 2**64 - 1]),
            ]
        )
    },
    "key": (
        {"type": 4, "columns": [name("p")]},
        kind(ti.LONG, 11),
        list(range(9)),
        lambda p: zlib.crc32(str(p).encode()) % 3,  # TiDB's is its own, too
    ),
}
"""How it is written, its column, values, and in which partition TiDB has each."""


def partitioned(up: Upstream, spec: Document) -> Document:
    bounds = {word: spec.get(word, [None] * 3) for word in ("less_than", "in_values")}
    definitions = [
        {"id": up.next_id(), "name": name(f"p{n}"), **{word: bound[n] for word, bound in bounds.items()}}
        for n in range(3)
    ]
    return {"expr": "", "columns": None, "enable": True, **spec, "definitions": definitions}


def laid_out(up: Upstream, layout: str, label: str) -> tuple[Table, dict[int, int]]:
    """MariaDB wants the column in each key, so the table has none. The partition of each row, by id."""
    spec, type_, values, part = LAYOUTS[layout]
    more = {"partition": partitioned(up, spec), "pk_is_handle": False}
    may = ["waits"] if layout == "key" else []
    table = up.create(f"{layout}: {label}", column("p", type_), may=may, **more)
    up.insert(table, [row(n, p=value) for n, value in enumerate(values)])
    return table, {n: part(value) for n, value in enumerate(values)}


def emptied(up: Upstream, layout: str, action: int, gone: tuple[int, ...]) -> None:
    table, parts = laid_out(up, layout, f"{action} of {gone}")
    table.rows = {n: data for n, data in table.rows.items() if parts[n] not in gone}

    def change(document: Document) -> None:
        definitions = document["partition"]["definitions"]
        new = (
            ()
            if action == Do.DROP_TABLE_PARTITION
            else [{**definitions[n], "id": up.next_id()} for n in gone]
        )
        for n in gone:
            definitions[n : n + 1] = [] if not new else [new[gone.index(n)]]

    up.alter(table, action, change)
    up.go_on(table, row(50, p=LAYOUTS[layout][2][-2]))


def cut_anew(up: Upstream, first: str, by: str, plus: int) -> None:
    """PARTITION BY HASH under the names that there are; then one goes."""
    table, _ = laid_out(up, first, f"by hash of {by}, then one goes")
    new = partitioned(up, {"type": 2, "expr": by})
    up.alter(table, Do.ALTER_TABLE_PARTITIONING, lambda document: document.update(partition=new))
    table.rows = {n: data for n, data in table.rows.items() if (n + plus) % 3 != 1}
    number = up.next_id()
    gone = {**new["definitions"][1], "id": number}
    up.alter(
        table,
        Do.TRUNCATE_TABLE_PARTITION,
        lambda document: document["partition"]["definitions"].__setitem__(1, gone),
    )


def exchanged(up: Upstream, layout: str, number: int) -> None:
    table, parts = laid_out(up, layout, f"exchange of {number}")
    other = up.create(table.label, column("p", LAYOUTS[layout][1]), may=table.may, pk_is_handle=False)
    fits = [n for n, part in parts.items() if part == number]
    up.insert(other, [row(40 + n, p=LAYOUTS[layout][2][n]) for n in fits])
    away = {n: table.rows.pop(n) for n in fits}
    table.rows, other.rows = table.rows | other.rows, away
    old, table.document = other.document["id"], copy.deepcopy(table.document)
    mine = table.document["partition"]["definitions"][number]
    other.document, mine["id"] = {**other.document, "id": mine["id"]}, old
    up.run(Do.EXCHANGE_TABLE_PARTITION, table, table_id=old)


def partitions() -> Iterator[Make]:
    for first, (plus, by) in itertools.product(("range", "hash 1"), enumerate(("`id`", "`w` + 1"))):
        yield partial(cut_anew, first=first, by=by, plus=plus)
    for layout, (spec, *_) in LAYOUTS.items():
        for gone in ((0,), (1,), (2,), (0, 2)):
            yield partial(emptied, layout=layout, action=Do.TRUNCATE_TABLE_PARTITION, gone=gone)
            yield partial(exchanged, layout=layout, number=gone[0])
        for gone in ((0,), (0, 1)[::-1]) if spec["type"] in (1, 3) else ():
            yield partial(emptied, layout=layout, action=Do.DROP_TABLE_PARTITION, gone=gone)


KINDS: Final[dict[str, Callable[[], Iterator[Make]]]] = {
    "add column": adds,
    "default": defaults,
    "type": types,
    "text": texts,
    "partition": partitions,
}
