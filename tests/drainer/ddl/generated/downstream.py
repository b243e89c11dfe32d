"""Runs cases through the apply side into a server whose administrator had ideas of his own, and looks."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import StatementRefused
from drainer.mysql.literal.quoting import qualified, quote_name
from tests.drainer.ddl.generated.kinds import Make
from tests.drainer.ddl.generated.upstream import SCHEMA, Table, Upstream
from tests.drainer.support.apply_life import Life, Recording, clean
from tidb_binlog.table_info import DATE_AND_TIME_KINDS, ColumnKind

ZONES: Final = ("UTC", 0), ("Asia/Shanghai", 28800), ("America/St_Johns", -12600), ("", 19800)
MODES: Final = 0, 1 << 1 | 1 << 2 | 1 << 20, 1 << 6 | 1 << 19, 1 << 31
"""Of jobs, which read text, subtract, and pad in their ways. None is strict: TiDB then refuses what loses."""
COLLATIONS: Final = "utf8mb4_bin", "utf8mb4_general_ci", "latin1_bin"
STRICT: Final = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE"
SERVERS: Final[tuple[dict[str, str], ...]] = (
    {"sql_mode": f"{STRICT},PAD_CHAR_TO_FULL_LENGTH,PIPES_AS_CONCAT", "time_zone": "+05:00"},
    {"explicit_defaults_for_timestamp": "OFF", "sql_mode": "", "time_zone": "-03:00"},
    {"sql_mode": f"{STRICT},ANSI,NO_BACKSLASH_ESCAPES", "character_set_server": "latin1"},
    {"explicit_defaults_for_timestamp": "OFF", "sql_mode": "ANSI_QUOTES,NO_UNSIGNED_SUBTRACTION"},
)


@contextlib.contextmanager
def configured(target: Target, seed: int) -> Iterator[None]:
    """With the global settings of one of `SERVERS`; what the server has not, or keeps, stays."""
    with connect(target) as root:
        values, wanted = dict(root.rows(b"SHOW GLOBAL VARIABLES")), SERVERS[seed % len(SERVERS)]
        names = [name for name in wanted if name in values]
        with contextlib.suppress(StatementRefused):
            for name in names:
                root.run(f"SET GLOBAL {name}='{wanted[name]}'".encode())
        try:
            yield
        finally:
            for name in [*names, "collation_server"]:  # which a character set takes with it
                root.run(f"SET GLOBAL {name}='{values[name]}'".encode())


async def run(target: Target, seed: int, makes: Iterable[Make]) -> tuple[Counter[str], list[str]]:
    """How many tables are equal, differ and say so, or wait; and what is silent, or needless."""
    chance = random.Random(seed)
    (zone, offset), mode, collate = map(chance.choice, (ZONES, MODES, COLLATIONS))
    session = {"reorg_meta": {"sql_mode": mode, "location": {"name": zone, "offset": offset}}}
    upstream = Upstream(session, collate.partition("_")[0], collate)
    for make in makes:
        make(upstream)
    clean(target)
    with configured(target, seed):
        missing = await applied(target, upstream.recording())
    outcomes, wrong = Counter[str](), list[str]()
    with connect(target) as connection:
        connection.run(b"SET SESSION time_zone='+00:00', sql_mode='ALLOW_INVALID_DATES'")
        listed = connection.rows(b"SELECT `tables` FROM tidb_binlog.quarantine")
        waiting = {name for (names,) in listed for _, name, *_ in json.loads(names)}
        for table in upstream.tables:
            lines = missing.get(table.name, [])
            outcome = "waits" if table.name in waiting else "named" if lines else "equal"
            outcomes[outcome] += 1
            silent = [] if table.name in waiting else _silent(connection, table, lines)
            if outcome not in ("equal", *table.may):
                silent.append(f"{outcome} {lines}")
            wrong += [f"seed {seed}, mode {mode}, {collate}, {zone}: {table.label}: {one}" for one in silent]
    return outcomes, wrong


async def applied(target: Target, recording: Recording) -> dict[str, list[str]]:
    """What the downstream lacks by its own word, by table."""
    life = Life(recording, target)
    assert await life.run()
    found: dict[str, list[str]] = {}
    for entry in life.sink.ddl_runner.missing:
        for name in entry.tables:
            found.setdefault(name.partition(".")[2], []).extend(entry.missing)
    return found


def _silent(connection: Connection, table: Table, lines: list[str]) -> list[str]:
    said = "\n".join(lines)
    return [
        f"{subject}: {text}"
        for subject, text in _differences(connection, table)
        if not re.search(rf"(?<!\w){re.escape(subject)}(?!\w)", said)
    ]


def _differences(connection: Connection, table: Table) -> Iterator[tuple[str, object]]:
    """(what a line of `missing` has to name, what TiDB has and the downstream)."""
    place, wanted = qualified(SCHEMA, table.name), table.values()
    columns = [(one.name, one.type.kind) for one in table.info.columns if one.is_writable]
    forms = b",".join(_form(kind, quote_name(name)) for name, kind in columns)
    found = {int(line[0] or 0): line for line in connection.printed(b"SELECT %b FROM %b" % (forms, place))}
    if found.keys() != wanted.keys():
        yield "rows", (sorted(wanted), sorted(found))
    for number in found.keys() & wanted.keys():
        for (name, kind), shown in zip(columns, found[number], strict=True):
            if _wanted(kind, value := wanted[number][name]) != _read(kind, shown):
                yield name, (value, shown)
    for name, kind in columns if wanted else ():
        if (value := table.default(name)) is not ... and kind is not ColumnKind.JSON:
            default = _form(kind, b"DEFAULT(%b)" % quote_name(name))
            ((shown,),) = connection.printed(b"SELECT %b FROM %b LIMIT 1" % (default, place))
            if _wanted(kind, value) != _read(kind, shown):
                yield name, ("default", value, shown)
    for query, answer in table.answers.items():
        *statements, query = query.split("; ")
        for statement in ("BEGIN", *statements):
            connection.run(statement.encode())
        if (given := connection.rows(query.encode())[0][0]) != answer:
            yield query.split()[1], (answer, given)
        connection.run(b"ROLLBACK")


def _form(kind: ColumnKind, name: bytes) -> bytes:
    if kind in (ColumnKind.TEXT, ColumnKind.JSON):
        return b"HEX(CONVERT(%b USING utf8mb4))" % name
    if kind is ColumnKind.BINARY:
        return b"HEX(%b)" % name
    return b"CAST(%b AS CHAR)" % name if kind in _CLOCKS else b"%b+0" % name


_CLOCKS: Final = DATE_AND_TIME_KINDS | {ColumnKind.TIME}


def _read(kind: ColumnKind, shown: bytes | None) -> Any:
    if shown is None or kind in _CLOCKS:
        return shown and shown.decode()
    if kind in (ColumnKind.TEXT, ColumnKind.BINARY, ColumnKind.JSON):
        raw = bytes.fromhex(shown.decode())
        return json.loads(raw) if kind is ColumnKind.JSON else raw
    return float(shown) if kind in (ColumnKind.FLOAT, ColumnKind.DOUBLE) else Decimal(shown.decode())


def _wanted(kind: ColumnKind, value: Any) -> Any:
    if value is None or kind in _CLOCKS or kind in (ColumnKind.FLOAT, ColumnKind.DOUBLE):
        return value
    if kind in (ColumnKind.TEXT, ColumnKind.BINARY):
        return value.encode() if isinstance(value, str) else bytes(value)
    return json.loads(value) if kind is ColumnKind.JSON else Decimal(getattr(value, "number", value))
