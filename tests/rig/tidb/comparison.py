"""Comparison: all tables of TiDB with those downstream, rows by their exact values.

Tests  tests/rig/tidb/test_comparison.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import ne
from typing import Any, Final

from binlog_playground.check.downstream import Downstream, expression
from binlog_playground.check.verify import (
    ActualTable,
    Canonical,
    ColumnForm,
    ExpectedTable,
    Report,
    Row,
    TableName,
    canonical,
    compare,
)
from drainer.ddl.derive import definition
from drainer.ddl.derive.render import own_rules
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NoSuchTable, StatementRefused
from drainer.mysql.rows.dialect import Dialect
from drainer.points.snapshot.drainer_hold import is_waiting
from tests.rig.tidb.binlogs import Overwritten
from tests.rig.tidb.statements import SCHEMAS, full, quote
from tests.rig.workload.limits import MARIADB, as_stored

DOUBLED: Final = "rows that TiDB has under a primary key of another"
OVERWRITTEN: Final = "rows that TiDB put others in the place of"
UNREAL: Final = "dates that do not exist, in tables partitioned by their days"
"""Servers look for them in another partition than the one into which they put them; drift counts each."""
_UNREAL: Final = re.compile(r"-02-3|-(?:04|06|09|11)-31")
_BY_DAYS: Final = b"""SELECT DISTINCT table_schema, table_name FROM information_schema.partitions
WHERE partition_method = 'RANGE' AND partition_expression REGEXP 'to_(days|seconds)'"""
_WIDE: Final = ("utf8", "utf8mb3", "utf8mb4")
_FORMS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), "int"),
    **dict.fromkeys(("float", "double"), "double"),
    **dict.fromkeys(("binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob"), "hex"),
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), "time"),
    "decimal": "dec",
    "bit": "uint",
}
_COLUMNS: Final = """SELECT c.table_schema, c.table_name, column_name, data_type, column_type,
 character_set_name, extra
FROM information_schema.columns c JOIN information_schema.tables t
 ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE table_type = 'BASE TABLE' AND c.table_schema IN ({}) AND column_name NOT LIKE '\\_Col$%'
ORDER BY c.table_schema, c.table_name, ordinal_position"""


class Tables:
    """What one server has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        connection.run(b"SET sql_mode = ''")
        listed = ", ".join(f"'{schema}'" for schema in SCHEMAS)
        self.columns: dict[TableName, dict[str, tuple[Any, ...]]] = {}
        self.keys: dict[TableName, tuple[str, ...]] = {}
        self.limited = 0
        """Rows without a key that are not there as they are here."""
        for schema, called, name, *rest in connection.rows(_COLUMNS.format(listed).encode()):
            self.columns.setdefault((schema, called), {}).setdefault(name, tuple(rest))
        # Of tables that were renamed into another database TiDB goes on to list the old ones.
        for table, columns in list(self.columns.items()):
            try:
                with connection.cursor() as cursor:
                    cursor.execute(f"SELECT * FROM {full(table)} LIMIT 0")
                    shown = [name for name, *_ in cursor.description or ()]
                keys = connection.rows(f"SHOW KEYS FROM {full(table)}".encode())
            except NoSuchTable:
                del self.columns[table]
            else:
                if columns.keys() >= set(shown):  # a long name is cut there
                    self.columns[table] = {name: columns[name] for name in shown}
                self.keys[table] = tuple(row[4] for row in keys if row[2] == "PRIMARY")

    def expected(self, tables: Iterable[TableName], *, for_tidb: bool) -> list[ExpectedTable]:
        """Rows of tables, in the form that they are compared in; `for_tidb`: downstream is one, too."""
        found = []
        for schema, name in tables:
            columns = self.columns[schema, name]
            forms = tuple(
                ColumnForm(column, _FORMS.get(rest[0], "text"), rest[1], rest[2] or "")
                for column, rest in columns.items()
            )
            key = self.keys[schema, name]
            table = ExpectedTable(schema, name, forms, key, ())
            rows = self._rows(table)
            if not key and not for_tidb:  # rows with a key are compared value by value, see `MARIADB`
                stored = [tuple(map(as_stored, forms, row)) for row in rows]
                self.limited += sum(map(ne, rows, stored))
                rows = stored
            found.append(ExpectedTable(schema, name, forms, key, rows))
        return found

    def actual(self, expected: Sequence[ExpectedTable]) -> dict[TableName, ActualTable]:
        """The same tables, and the names of all others."""
        found = {}
        by_name = {(table.schema, table.name): table for table in expected}
        for name, columns in self.columns.items():
            table = by_name.get(name)
            rows: Sequence[Row] = ()
            if table is not None and tuple(columns) == tuple(column.name for column in table.columns):
                rows = self._rows(table)
            found[name] = ActualTable(tuple(columns), rows)
        return found

    def computes(self, table: TableName, column: str) -> bool:
        """Whether the server can read what it has."""
        try:
            self._connection.rows(f"SELECT {quote(column)} FROM {full(table)}".encode())
        except StatementRefused as error:
            print(f"{full(table)}: {column} cannot be read: {error}")
            return False
        return True

    def _rows(self, table: ExpectedTable) -> Sequence[Row]:
        """Out of the table: an index over an expression has weights of the key, which the stand-in shows."""
        Downstream(self._connection)  # values come as the server prints them, from now on
        shown = ", ".join(expression(column) for column in table.columns)
        hint = " USE INDEX ()" if self._connection.dialect is Dialect.TIDB else ""
        listed = self._connection.rows(
            f"SELECT {shown} FROM {full((table.schema, table.name))}{hint}".encode()
        )
        forms = [column.repr for column in table.columns]
        return meaning(table, [tuple(map(canonical, row, forms)) for row in listed])


def meaning(table: ExpectedTable, rows: Iterable[Row]) -> list[Row]:
    """Rows whose documents do not depend on how a server prints them, nor CHARs on its mode."""
    types = [column.type for column in table.columns]
    if not any(kind == "json" or kind.startswith("char(") for kind in types):
        return list(rows)
    return [tuple(map(_meaning, row, types)) for row in rows]


def _meaning(value: Canonical, column_type: str) -> Canonical:
    if not isinstance(value, str):
        return value
    if column_type == "json":
        return json.dumps(json.loads(value, parse_int=float), sort_keys=True)
    return value.rstrip(" ") if column_type.startswith("char(") else value


def by_own_rules(document: dict[str, Any]) -> set[str]:
    """Generated columns of a TableInfo of which it is told that each server computes them in its own way."""
    table = definition.read(document)
    return {column.name for column in table.columns if own_rules(column, table)}


def compared(
    upstream: Connection,
    downstream: Connection,
    waiting: Collection[str],
    computed: Callable[[TableName], Collection[str]] = lambda table: (),
    overwritten: Callable[[TableName], Collection[Overwritten]] = lambda table: (),
) -> Report:
    """All tables but those that wait. `computed`: columns that another server computes in its own way;
    `overwritten`: rows that the upstream's binlog has, and the upstream put others in the place of."""
    source, target = Tables(upstream), Tables(downstream)
    names = [name for name in source.columns if not is_waiting(waiting, [name])]
    for_tidb = downstream.dialect is Dialect.TIDB
    by_their_rules = set()
    for name in names:
        there = target.columns.get(name, {})
        told = computed(name)
        if for_tidb:  # the same server computes the same, but what a session's mode decides
            told = {column for column in told if (source.columns[name][column][2] or "utf8") not in _WIDE}
        for column, (*_, extra) in list(source.columns[name].items()):
            only_here = _is_generated(extra) and column in there and not _is_generated(there[column][-1])
            if column in told or only_here or (_is_generated(extra) and not source.computes(name, column)):
                del source.columns[name][column]
                there.pop(column, None)
                by_their_rules.add(name)
    expected = source.expected(names, for_tidb=for_tidb)
    actual = {
        name: table for name, table in target.actual(expected).items() if not is_waiting(waiting, [name])
    }
    report = compare(expected, actual, MARIADB)
    if source.limited:
        report.limited[f"{MARIADB[0].name}, without a key"] = source.limited
    if not for_tidb:
        leave_out_unreal(report, {".".join(row) for row in upstream.rows(_BY_DAYS)})
    for table in expected:
        prove(report, table, overwritten)
        if not table.key and (table.schema, table.name) in by_their_rules:
            report.limited["computed by each server, without a key"] += len(table.rows)  # all that may differ
    return report


def leave_out_unreal(report: Report, by_days: Collection[str]) -> None:
    """Leave out rows of these tables with a date that does not exist."""
    for one in list(report.differences):
        if one.table in by_days and _UNREAL.search(f"{one.expected} {one.actual}"):
            report.differences.remove(one)
            report.limited[UNREAL] += 1


def prove(
    report: Report, table: ExpectedTable, overwritten: Callable[[TableName], Collection[Overwritten]]
) -> None:
    """Leave out differences of a table about which the upstream contradicts itself; the proof is shown."""
    if table.key:
        _leave_out_doubled(report, table)
        return
    surplus = [one for one in report.differences if one.table == table.full_name]
    # Its binlog has these rows, and says as often that there are two where TiDB keeps one.
    if surplus and all(one.expected is None and one.actual is not None for one in surplus):
        proof = overwritten((table.schema, table.name))
        if len(proof) == len(surplus):
            for one in proof:
                print(f"{table.full_name}: TiDB put a row in the place of another one: {one}")
            report.differences = [one for one in report.differences if one.table != table.full_name]
            report.limited[OVERWRITTEN] += len(surplus)


def _leave_out_doubled(report: Report, table: ExpectedTable) -> None:
    """TiDB itself has two rows with one primary key, in two partitions."""
    names = [column.name for column in table.columns]
    places = [names.index(name) for name in table.key]
    by_key: dict[Row, list[Row]] = {}
    for row in table.rows:
        by_key.setdefault(tuple(row[place] for place in places), []).append(row)
    for one in [one for one in report.differences if one.table == table.full_name]:
        either = one.expected or one.actual
        doubled = by_key.get(tuple(either[place] for place in places), []) if either else []
        if len(doubled) > 1:
            print(f"{one.table}: TiDB has rows with one primary key: {doubled}")
            report.differences.remove(one)
            report.limited[DOUBLED] += 1


def _is_generated(extra: str) -> bool:
    return extra.endswith(("VIRTUAL GENERATED", "STORED GENERATED"))


def without_key(server: Connection) -> set[str]:
    """Tables whose rows have no primary key."""
    return {f"{schema}.{name}" for (schema, name), key in Tables(server).keys.items() if not key}
