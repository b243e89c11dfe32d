"""Random histories of tables of each shape, and the MariaDB that holds what they come to."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from drainer.mysql.collation_reader import read_collation
from drainer.mysql.connection import Connection
from drainer.mysql.errors import StatementRefused
from drainer.mysql.rows.causality import Spread, collations_of
from drainer.mysql.rows.change import Chunk, Form, Position, TableTarget
from drainer.mysql.rows.row_fold import fold
from drainer.mysql.rows.statement import statements
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.table_reader import read_table
from drainer.sink.mysql.dispatcher import CUT_ROWS, Dispatcher
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import binary, index, key, kind, table
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FieldType, Index, TableInfo

BREAKS_A_KEY = (1048, 1062)  # NULL in a key, and a duplicate

INTS = [0, 1, 2, 3, 4, 5, 6, -1]

TEXTS = ["a", "A", "a ", "á", "b", "ab", "AB", "abc", "abd", "ABC", "ß", "ss", "", "b  "]

PLAIN = ["a", "A", "a ", "b", "ab", "AB", ""]  # equal to the same others under every ci collation

BYTES = [b"a", b"A", b"a\0", b"ab", b"", b"a "]

FLOATS = [0.1, 0.5, 1e10, -3.25, 7.0]

LANES = 3


@dataclass(frozen=True)
class Shape:
    """`upstream` and `downstream` are the parts of CREATE TABLE after the columns of `columns`.

    `changed`: column definitions that are other ones downstream. `form`, `spread`: what must be chosen.
    """

    name: str
    columns: dict[str, tuple[FieldType, str, list[Any]]]
    upstream: str
    form: Form
    spread: Spread
    indexes: tuple[Index, ...] = ()
    handle: str = "rowid"
    downstream: str | None = None
    changed: dict[str, str] = field(default_factory=dict)
    extra: str = ""
    trigger: bool = False


def number(**more: Any) -> tuple[FieldType, str, list[Any]]:
    return kind("int", **more), "INT" + " NOT NULL" * more.get("not_null", False), INTS


def text(collate: str, name: str = "VARCHAR(9)", **more: Any) -> tuple[FieldType, str, list[Any]]:
    made = kind("varchar", flen=9, collate=collate, **more)
    return made, f"{name} COLLATE {collate}" + " NOT NULL" * more.get("not_null", False), TEXTS


ID = (key("int"), "INT NOT NULL", INTS)

V = number()

S = text("utf8mb4_bin")

PK = (index(1, ("k", 0), primary=True),)

CI, BIN, UNI = "utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_unicode_ci"

COLLATED = Spread.BY_COLLATED_KEY

EXTRA = ", x INT DEFAULT 7"


def required(collate: str) -> tuple[FieldType, str, list[Any]]:
    return text(collate, not_null=True)


INT_KEY = {"id": ID, "v": V, "s": S}

UNIQUE = {"id": ID, "u": V, "s": S}

ON_U = (index(2, ("u", 1)),)

SHAPES = [
    Shape("int", INT_KEY, "PRIMARY KEY(id)", Form.REPLACE, Spread.BY_KEY, handle="int"),
    Shape("int_extra", INT_KEY, "PRIMARY KEY(id)", Form.UPSERT, Spread.BY_KEY, handle="int", extra=EXTRA),
    Shape("int_trigger", INT_KEY, "PRIMARY KEY(id)", Form.UPSERT, Spread.BY_KEY, handle="int", trigger=True),
    Shape("int_computed", INT_KEY, "PRIMARY KEY(id)", Form.REPLACE, Spread.BY_KEY, handle="int",
          extra=", g INT AS (id+1) STORED"),
    Shape("text_bin", {"k": required(BIN), "v": V}, "PRIMARY KEY(k)", Form.REPLACE, Spread.BY_PADDED_KEY, PK),
    Shape("text_ci", {"k": required(CI), "v": V}, "PRIMARY KEY(k)", Form.REPLACE, COLLATED, PK),
    Shape("text_uni", {"k": required(UNI), "v": V}, "PRIMARY KEY(k)", Form.REPLACE, COLLATED, PK),
    Shape("text_ci_extra", {"k": required(CI), "v": V}, "PRIMARY KEY(k)", Form.UPSERT, COLLATED, PK,
          extra=EXTRA),
    Shape("ci_unique", {"k": required(CI), "v": V}, "UNIQUE(k)", Form.REPLACE, COLLATED,
          (index(1, ("k", 0)),)),
    Shape("composite_ci", {"a": number(not_null=True), "b": required(CI), "c": required(BIN), "v": V},
          "PRIMARY KEY(a,b,c)", Form.REPLACE, COLLATED,
          (index(1, ("a", 0), ("b", 1), ("c", 2), primary=True),)),
    Shape("ci_to_bin", {"k": required(CI), "v": V}, "PRIMARY KEY(k)", Form.REPLACE, Spread.BY_PADDED_KEY, PK,
          changed={"k": f"VARCHAR(9) COLLATE {BIN} NOT NULL"}),
    Shape("ci_to_uni", {"k": (*required(CI)[:2], PLAIN), "v": V}, "PRIMARY KEY(k)", Form.REWRITE,
          COLLATED, PK, changed={"k": f"VARCHAR(9) COLLATE {UNI} NOT NULL"}),
    Shape("bytes", {"k": (binary("varchar", flen=9, not_null=True), "VARBINARY(9) NOT NULL", BYTES), "v": V},
          "PRIMARY KEY(k)", Form.REPLACE, Spread.BY_KEY, PK),
    Shape("prefix", {"k": required(BIN), "v": V}, "UNIQUE(k(2))", Form.REPLACE, Spread.BY_TABLE,
          (index(1, ("k", 0, 2)),)),
    Shape("composite", {"a": number(not_null=True), "b": required(BIN), "v": V}, "PRIMARY KEY(a,b)",
          Form.REPLACE, Spread.BY_PADDED_KEY, (index(1, ("a", 0), ("b", 1), primary=True),)),
    Shape("unique", UNIQUE, "PRIMARY KEY(id), UNIQUE(u)", Form.REWRITE, Spread.BY_TABLE, ON_U, "int"),
    Shape("unique_ci", {"id": ID, "u": text(CI), "v": V}, "PRIMARY KEY(id), UNIQUE(u)", Form.REWRITE,
          Spread.BY_TABLE, ON_U, "int"),
    Shape("unique_prefix", {"id": ID, "u": S, "v": V}, "PRIMARY KEY(id), UNIQUE(u(1))", Form.REWRITE,
          Spread.BY_TABLE, (index(2, ("u", 1, 1)),), "int"),
    Shape("unique_extra", UNIQUE, "PRIMARY KEY(id), UNIQUE(u)", Form.REWRITE, Spread.BY_TABLE, ON_U, "int",
          extra=EXTRA),
    Shape("unique_gone", UNIQUE, "PRIMARY KEY(id), UNIQUE(u)", Form.REWRITE, Spread.BY_TABLE, ON_U, "int",
          downstream="PRIMARY KEY(id)"),
    Shape("wider_key", INT_KEY, "PRIMARY KEY(id)", Form.REWRITE, Spread.BY_TABLE, handle="int",
          downstream="PRIMARY KEY(id, x)", extra=", x INT NOT NULL DEFAULT 7"),
    Shape("key_gone", INT_KEY, "PRIMARY KEY(id)", Form.REWRITE, Spread.BY_KEY, handle="int",
          downstream="KEY(id)"),
    Shape("keyless_extra", {"v": V, "s": text(CI), "f": (kind("float"), "FLOAT", FLOATS)}, "", Form.KEYLESS,
          Spread.BY_TABLE, extra=", own INT AUTO_INCREMENT PRIMARY KEY" + EXTRA),
    Shape("keyless_trigger", {"v": V, "s": text(CI)}, "", Form.KEYLESS, Spread.BY_TABLE, trigger=True),
    Shape("keyless", {"v": V, "s": text(CI), "f": (kind("float"), "FLOAT", FLOATS)}, "", Form.KEYLESS,
          Spread.BY_TABLE),
]  # fmt: skip


class World:
    """Both tables and the rows that upstream has, by a number of their own."""

    def __init__(
        self,
        connection: Connection,
        shape: Shape,
        rng: random.Random,
        *,
        cut_rows: int = CUT_ROWS,
    ) -> None:
        self.calm = cut_rows < CUT_ROWS  # most changes leave the keys as they are
        self.connection, self.shape, self.rng = connection, shape, rng
        self.names = list(shape.columns)
        self.rows: dict[int, dict[str, Any]] = {}
        self.moved: set[int] = set()  # rows whose own columns downstream are not kept in this batch
        self._next = 1
        info: TableInfo = table(
            *((name, parts[0]) for name, parts in shape.columns.items()),
            handle=shape.handle,
            indexes=shape.indexes,
        )
        self.encoder = RowEncoder(info)
        self._create(shape)
        found = read_table(connection, "M", "DST")
        assert found is not None
        self.version = TableVersion(info, "m", "dst", 1)
        read = {name: read_collation(connection, name) for name in collations_of(found)}
        known = {name: collation for name, collation in read.items() if collation is not None}
        self.target: TableTarget = target_of(self.version, LANES, found, collations=known)
        self.lanes = Dispatcher([Position(0)] * LANES, cut_rows=cut_rows)
        self.lanes.learn(self.target)
        self.ts = 10

    def _create(self, shape: Shape) -> None:
        columns = ", ".join(f"{name} {parts[1]}" for name, parts in shape.columns.items())
        theirs = ", ".join(
            f"{name} {shape.changed.get(name, parts[1])}" for name, parts in shape.columns.items()
        )
        keys = shape.upstream if shape.downstream is None else shape.downstream
        self.run("DROP TABLE IF EXISTS m.ref, m.dst, m.gone")
        own = ", x INT DEFAULT 7" if "x INT" in shape.extra else ""
        self.run(f"CREATE TABLE m.ref (rid INT, KEY(rid), {columns}{own}{_comma(shape.upstream)})")
        self.run(f"CREATE TABLE m.dst ({theirs}{shape.extra}{_comma(keys)})")
        if shape.trigger:
            self.run("CREATE TABLE m.gone (n INT)")
            self.run("CREATE TRIGGER m.away AFTER DELETE ON m.dst FOR EACH ROW INSERT INTO m.gone VALUES (1)")

    def run(self, statement: str, values: Any = None) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()

    # -- upstream --------------------------------------------------------------------------------

    def event(self) -> list[tuple[int, bytes]]:
        """One thing that happens to the table: (kind, encoded row), none if upstream refuses it."""
        choice = self.rng.random()
        try:
            if not self.rows or choice < 0.35:
                return [self.insert()]
            rid = self.rng.choice(list(self.rows))
            if choice < 0.6 and not (self.calm and choice < 0.55):
                return [self.delete(rid)]
            if choice < 0.7 and len(self.rows) > 1 and "u" in self.names:
                return self._swap(rid)
            return [self.update(rid)]
        except StatementRefused as error:
            if error.number not in BREAKS_A_KEY:
                raise
            return []

    def _value(self, name: str) -> Any:
        kind_, _, pool = self.shape.columns[name]
        return self.rng.choice(pool if kind_.not_null else [*pool, None])

    def insert(self) -> tuple[int, bytes]:
        row = {name: self._value(name) for name in self.names}
        rid, self._next = self._next, self._next + 1
        self.put(rid, row)
        return INSERT, self.encoder.insert(row, rowid=rid)

    def put(self, rid: int, row: dict[str, Any], x: Any = None) -> None:
        names, values = ["rid", *self.names], [rid, *row.values()]
        if x is not None:
            names, values = [*names, "x"], [*values, x]
        marks = ",".join(["%s"] * len(values))
        self.run(f"INSERT INTO m.ref ({','.join(names)}) VALUES ({marks})", values)
        self.rows[rid] = row

    def _tells_apart_no_more(self, rid: int) -> None:
        """Rows without key that are equal: which of them a change is of is not known downstream."""
        equal = [each for each, row in self.rows.items() if row == self.rows[rid]]
        if not self.target.keyed and len(equal) > 1:
            self.moved.update(equal)

    def delete(self, rid: int) -> tuple[int, bytes]:
        self._tells_apart_no_more(rid)
        self.run("DELETE FROM m.ref WHERE rid=%s", (rid,))
        return DELETE, self.encoder.delete(self.rows.pop(rid), rowid=rid)

    def update(self, rid: int) -> tuple[int, bytes]:
        old = self.rows[rid]
        self._tells_apart_no_more(rid)
        some = self.rng.sample(self.names, self.rng.randint(1, len(self.names)))
        if self.calm and self.rng.random() < 0.7:
            some = [self.names[-1]]
        new = {**old, **{name: self._value(name) for name in some}}
        setting = ",".join(f"{name}=%s" for name in self.names)
        self.run(f"UPDATE m.ref SET {setting} WHERE rid=%s", [*new.values(), rid])
        self.rows[rid] = new
        keys = {part.name for entry in self.shape.indexes for part in entry.columns} | {"id"}
        if any(old[name] != new[name] for name in keys & set(self.names)):
            self.moved.add(rid)
        return UPDATE, self.encoder.update(old, new, rowid=rid)

    def _swap(self, rid: int) -> list[tuple[int, bytes]]:
        """Two rows exchange their unique values inside a transaction."""
        other = self.rng.choice([each for each in self.rows if each != rid])
        first, second = self.rows[rid], self.rows[other]
        pairs = [(rid, first, {**first, "u": second["u"]}), (other, second, {**second, "u": first["u"]})]
        xs: dict[int, Any] = {}
        if "x INT" in self.shape.extra:
            xs = dict(self.run("SELECT rid, x FROM m.ref WHERE rid IN (%s,%s)", (rid, other)))
        self.run("DELETE FROM m.ref WHERE rid IN (%s,%s)", (rid, other))
        for number_, _, new in pairs:
            self.put(number_, new, xs.get(number_))
            self.moved.add(number_)
        return [(UPDATE, self.encoder.update(old, new, rowid=number_)) for number_, old, new in pairs]

    # -- downstream ------------------------------------------------------------------------------

    def batch(self) -> list[Chunk]:
        """Some transactions, cut into lanes."""
        self.moved.clear()
        for _ in range(self.rng.randint(1, 4)):
            events = [event for _ in range(self.rng.randint(1, 4)) for event in self.event()]
            self.ts += 1
            tables = (TableEvents(self.version, [k for k, _ in events], [row for _, row in events], 0),)
            self.lanes.dispatch(Transaction(self.ts - 1, self.ts, tables, 1))
        return [chunk for _, chunk in self.lanes.take()]

    def apply(self, chunks: list[Chunk], *, replaying: bool = False) -> None:
        if not any(chunk.cut for chunk in chunks):
            self.rng.shuffle(chunks)
        for chunk in chunks:
            folds = fold(chunk.changes)
            for statement in statements(folds, 1 << 20, replaying=replaying, cut=chunk.cut):
                drift = statement.drift(self.connection.run(statement.sql))
                assert drift == 0, (statement.sql, statement.expected)

    def check(self) -> None:
        columns = ",".join(f"HEX({name})" if name != "f" else "f+0e0" for name in self.names)
        query = f"SELECT {columns} FROM m."
        expected, found = Counter(self.run(query + "ref")), Counter(self.run(query + "dst"))
        assert found == expected, self.shape.name
        if "x INT" in self.shape.extra and self.shape.downstream is None and self.rows:
            self._check_own_column(columns)

    def _check_own_column(self, columns: str) -> None:
        moved = ",".join(map(str, self.moved)) or "0"
        kept = self.run(f"SELECT {columns}, x FROM m.ref WHERE rid NOT IN ({moved})")
        assert not Counter(kept) - Counter(self.run(f"SELECT {columns}, x FROM m.dst")), self.shape.name
        # An operator gives the rows values, the same on both sides.
        names = ",".join(self.names)
        self.run(f"UPDATE m.ref SET x=CRC32(CONCAT_WS(',',{names})) % 1000")
        self.run(f"UPDATE m.dst SET x=CRC32(CONCAT_WS(',',{names})) % 1000")


def _comma(text_: str) -> str:
    return f", {text_}" if text_ else ""
