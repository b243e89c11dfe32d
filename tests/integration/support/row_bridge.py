"""Row bridge: a MariaDB plays the database of an upstream. What it commits is published as its binlog.

Reads MariaDB's own row-based binary log (`mariadb-binlog`, following) and publishes every transaction in
commit order through `pumpclient`: whoever wrote it, an application or a drainer that replicates into this
database. CREATE statements become DDL jobs with the definition that the server shows. Whole numbers and plain
text are enough here; tables of other types that drainers keep for themselves are left out by name.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pumpclient
from drainer.mysql.mark import is_mark_table
from drainer.mysql.sql_tokens import tokens, unquote
from tests.binary_log import COMMIT, ROW, BinlogServer, Name
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import (
    BLOB,
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    FLAG_UNSIGNED,
    LONG,
    LONGLONG,
    VARCHAR,
    Column,
    FieldType,
    Index,
    IndexColumn,
    TableInfo,
)

_VALUE = re.compile(r"###   @\d+=(.*)$")
_TYPES = {"int": LONG, "bigint": LONGLONG, "varchar": VARCHAR, "mediumtext": BLOB}
# What drainers keep about themselves that the bridge reads: enough to see that it does not replicate.
_OF_DRAINERS = {("tidb_binlog", "checkpoint"), ("tidb_binlog", "lanes")}


@dataclass(slots=True)
class Table:
    info: TableInfo
    encoder: RowEncoder


@dataclass(slots=True)
class Change:
    verb: str
    name: Name
    images: list[list[str]] = field(default_factory=list)


class RowBridge:
    """One direction's upstream. `seen` counts transactions by what is in them; `run` until cancelled."""

    def __init__(self, server: BinlogServer, publisher: pumpclient.Publisher) -> None:
        self._server = server
        self._publisher = publisher
        self._databases: dict[str, int] = {}
        self._tables: dict[Name, Table] = {}
        self._numbers = itertools.count(1)
        self._current = ""
        self.seen: Counter[str] = Counter()

    async def run(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._server.reading("--stop-never"), stdout=asyncio.subprocess.PIPE, limit=1 << 24
        )
        try:
            await self._follow(process.stdout)
        finally:
            process.kill()
            await process.wait()

    async def _follow(self, lines: asyncio.StreamReader | None) -> None:
        assert lines is not None
        changes: list[Change] = []
        statement: list[str] = []
        while line := (await lines.readline()).decode(errors="replace"):  # other tables may hold anything
            line = line.rstrip("\n")
            if found := ROW.match(line):
                changes.append(Change(found[1], (found[2], found[3])))
            elif line in ("### SET", "### WHERE"):
                changes[-1].images.append([])
            elif value := _VALUE.match(line):
                changes[-1].images[-1].append(value[1])
            elif line == COMMIT:
                await self._publish(changes)
                changes = []
            elif line == "/*!*/;":
                await self._ddl("\n".join(statement))
            if re.match(r"(create|use)\b", line, re.I):
                statement = [line]
            elif statement and not line.startswith("#") and line != "/*!*/;":
                statement.append(line)
            else:
                statement = []
        raise AssertionError("mariadb-binlog ended")

    # -- DDL ------------------------------------------------------------------------------------------

    async def _ddl(self, text: str) -> None:
        for statement in text.split("/*!*/;\n"):
            words = tokens(statement)
            lowered = [word.lower() for word in words]
            if lowered[:1] == ["use"]:
                self._current = unquote(words[1].split("/*")[0])
            if lowered[:1] != ["create"]:
                continue
            names = [unquote(word) for word in words[2:] if word.lower() not in ("if", "not", "exists")]
            if lowered[1] in ("database", "schema"):
                await self._create_database(names[0], statement)
            elif lowered[1] == "table":
                name = (names[0], names[2]) if names[1] == "." else (self._current, names[0])
                await self._create_table(name, statement)

    async def _create_database(self, name: str, statement: str) -> None:
        if name in self._databases:
            return
        number = next(self._numbers)
        self._databases[name] = 100 + number
        job = pumpclient.create_database_job(number, 100 + number, name, schema_version=number)
        await self._publisher.ddl(job, statement.rstrip(";"))

    async def _create_table(self, name: Name, statement: str) -> None:
        if name in self._tables or (name[0] == "tidb_binlog" and name not in _OF_DRAINERS):
            return
        number = next(self._numbers)
        info = await asyncio.to_thread(self._definition, name, 100 + number)
        self._tables[name] = Table(info, RowEncoder(info))
        job = pumpclient.create_table_job(
            number, self._databases[name[0]], name[0], info, schema_version=number
        )
        await self._publisher.ddl(job, statement.rstrip(";"))

    def _definition(self, name: Name, table_id: int) -> TableInfo:
        connection = self._server.connect(5.0)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name, data_type, column_type, is_nullable, column_key,"
                " character_maximum_length FROM information_schema.columns"
                " WHERE table_schema=%s AND table_name=%s ORDER BY ordinal_position",
                name,
            )
            rows = cursor.fetchall()
        connection.close()
        columns, key = [], []
        for place, (column, kind, full, nullable, indexed, length) in enumerate(rows):
            flags = FLAG_NOT_NULL * (nullable == "NO") | FLAG_PRIMARY * (indexed == "PRI")
            flags |= FLAG_UNSIGNED * ("unsigned" in full)
            kind_of_field = FieldType(_TYPES[kind], flags, length or 20)
            if length:
                kind_of_field = replace(kind_of_field, charset="utf8mb4", collate="utf8mb4_bin")
            columns.append(Column(place + 1, column, place, kind_of_field))
            if indexed == "PRI":
                key.append(IndexColumn(column, place))
        index = Index(1, "PRIMARY", tuple(key), unique=True, primary=True)
        return TableInfo(table_id, name[1], tuple(columns), (index,), is_common_handle=True)

    # -- rows -----------------------------------------------------------------------------------------

    async def _publish(self, changes: list[Change]) -> None:
        known = [change for change in changes if change.name in self._tables]
        if not known:
            return
        self._count(known)
        async with self._publisher.transaction(ttl_s=300.0) as transaction:
            for change in known:
                table = self._tables[change.name]
                images = [_values(table.info, image) for image in change.images]
                if change.verb == "UPDATE":
                    transaction.update(table.info.id, table.encoder.update(images[0], images[1]))
                elif change.verb == "INSERT INTO":
                    transaction.insert(table.info.id, table.encoder.insert(images[0]))
                else:
                    transaction.delete(table.info.id, table.encoder.delete(images[0]))

    def _count(self, changes: list[Change]) -> None:
        names = {change.name for change in changes}
        marked = any(is_mark_table(*name) for name in names)
        if any(name[0] == "app" for name in names):
            self.seen["app, marked" if marked else "app"] += 1
        elif names & _OF_DRAINERS:
            self.seen["checkpoint"] += 1


def _values(info: TableInfo, image: list[str]) -> list[Any]:
    return [_value(column.type, text) for column, text in zip(info.columns, image, strict=True)]


def _value(kind: FieldType, text: str) -> Any:
    if text == "NULL":
        return None
    if text.startswith("'"):
        return text[1:-1]
    signed, _, unsigned = text.partition(" (")
    return int(unsigned.rstrip(")") if unsigned and kind.unsigned else signed)
