"""Columns: type changes in the downstream whose values become TiDB's, not those of the server's own cast.

Drives  one connection of the DDL runner, while the table's rows wait. For a large table the DDL waits in the
        quarantine and is released at once, so that other tables go on
Out     columns of their new type, under their old names, in their old places, with their keys; what is left
        of the DDL is derived afterwards. Lines for values that the downstream cannot have
Holds   a new column is made beside the old one, filled by TiDB's cast chunk by chunk, each distinct value
        once, and takes the old one's place in one ALTER. Until then the old column is as it was, so whatever
        interrupts it, the next call begins anew: what is done is seen in the table, nothing is remembered
Never   converts what a plain ALTER converts alike (`same`); touches ON UPDATE columns

Tests   tests/drainer/ddl/convert/test_columns.py, tests/drainer/ddl/convert/schema.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from drainer.ddl.convert.cast import Moments, Value, cast
from drainer.ddl.convert.moments import NoCast, zone_of
from drainer.ddl.derive import definition
from drainer.ddl.derive.alter_table import counterparts, same_shape
from drainer.ddl.derive.compare import Present, PresentColumn, PresentKey, same_type
from drainer.ddl.derive.definition import Column, Definition, Key
from drainer.ddl.derive.derive import Change, before_of
from drainer.ddl.derive.render import (
    NotDerivable,
    check_clause,
    collate_clause,
    column_clause,
    fitting,
    name_of,
    type_of,
)
from drainer.mysql.chunks.cut_key import key_to_copy
from drainer.mysql.chunks.printed import floating_text
from drainer.mysql.chunks.splitter import Splitter
from drainer.mysql.connection import Connection
from drainer.mysql.errors import StatementRefused
from drainer.mysql.literal.charset import Charset
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.table_reader import read_table
from tidb_binlog import table_info as ti
from tidb_binlog import tso
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log
from tidb_binlog.table_info import INTEGER_KINDS, ColumnKind, FieldType
from tidb_binlog.tso import Ts

logger = log.get("drainer.ddl_convert")

CONVERT: Final = "convert"
WAIT: Final = "wait"
DOWNSTREAM: Final = "downstream"

_BESIDE: Final = "tidb_binlog_cast_"
_ROWS: Final = 500
_LONG_ROWS: Final = 50
_STATEMENT_BYTES: Final = 1 << 19
_CASE_BYTES: Final = 16  # the words around a value
_LONG: Final = frozenset({ti.TINY_BLOB, ti.BLOB, ti.MEDIUM_BLOB, ti.LONG_BLOB, ti.JSON})
_AS_NUMBER: Final = frozenset({ColumnKind.YEAR, ColumnKind.BIT, ColumnKind.ENUM, ColumnKind.SET})
_INTEGERS: Final = _AS_NUMBER | {ColumnKind.SIGNED, ColumnKind.UNSIGNED}


@dataclass(frozen=True, slots=True)
class Conversion:
    """One column whose values are converted. `present`: as it is downstream; `beside`: the column that takes
    its place; `target`: its definition then, under the name that it has there."""

    present: PresentColumn
    beside: str
    source: Column
    target: Column

    def __str__(self) -> str:
        return f"column {self.present.name} from {type_of(self.source)} to {type_of(self.target)}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The columns of one table, and the statements before and after they are filled."""

    change: Change
    table: tuple[str, str]
    conversions: tuple[Conversion, ...]
    add: str
    swap: str
    left: tuple[str, ...]
    """Columns beside that an earlier attempt left."""

    def __str__(self) -> str:
        return "; ".join(map(str, self.conversions))

    @property
    def undo(self) -> str:
        return self.without(conversion.beside for conversion in self.conversions)

    def without(self, names: Iterable[str]) -> str:
        drops = ", ".join(f"DROP COLUMN {name_of(name)}" for name in names)
        return f"ALTER TABLE {name_of(*self.table)} {drops}"

    @property
    def statements(self) -> tuple[str, ...]:
        return self.add, self.swap, self.undo


def convert(
    connection: Connection, change: Change, mode: str, job: Moments, run: Callable[[str], None]
) -> tuple[list[str], list[str]]:
    """(statements that ran, lines of what the downstream lacks). `run` runs one ALTER.

    The session has the zone +00:00 and takes any value. Raises `NotDerivable` and what the server refuses.
    """
    statements: list[str] = []
    lacks: list[str] = []
    for plan in plans(change):
        if mode != CONVERT and plan.left:
            run(plan.without(plan.left))
        if mode == DOWNSTREAM:
            lacks.append(f"{plan}: values are what the downstream's own conversion made of them")
            continue
        if mode == WAIT:
            raise NotDerivable(
                f"{plan}: {change.server.dialect.value} would convert values otherwise than the upstream"
                " did, and `ddl-conversions` says that the table waits then"
            )
        logger.info("converting values of columns", table=".".join(plan.table), columns=str(plan))
        run(plan.add)
        try:
            lacks += fill(connection, plan, job)
            run(plan.swap)
        except (NotDerivable, StatementRefused):  # the table waits, as it was
            run(plan.undo)
            raise
        statements += plan.add, plan.swap
    return statements, lacks


def plans(change: Change) -> list[Plan]:
    """What is to be converted yet, by table. Raises `NotDerivable`."""
    return [plan for table in change.after if (plan := _plan(change, table)) is not None]


def _plan(change: Change, tracked: Any) -> Plan | None:
    present, was = change.present_of(tracked), before_of(change, tracked)
    if present is None or was is None:
        return None
    before = definition.read(was.document)
    after = fitting(definition.read(tracked.document), change.server, [])
    if not after.is_table:
        return None
    conversions = []
    names_upstream = {column.name.lower() for column in (*before.columns, *after.columns)}
    modified = change.effect.modifies_columns
    for number, old in counterparts(before, after, modified=modified, apart=change.apart).items():
        new = next(column for column in after.columns if column.id == number)
        names = (new.name, old.name) if change.ran else (old.name, new.name)
        column = present.column(names[0]) or present.column(names[1])
        if column is None or old.generated or new.generated:
            continue
        # JSON and LONGTEXT are one type in some servers: whichever it is there, a second time changes nothing
        both = old.type.tp != new.type.tp and same_type(old, column, change.server)
        if same_type(new, column, change.server) and not both:
            continue
        changed = modified and not is_same(old.type, new.type, change.server.dialect)
        if changed or (not same_shape(old.type, new.type) and _may_be_cut(old, column, change)):
            if _family(column.type) != _family(type_of(old)):
                raise NotDerivable(
                    f"column {column.name} is {column.type} downstream and was {type_of(old)} upstream:"
                    " its values cannot be converted as those of the upstream were"
                )
            beside = f"{_BESIDE}{number}"
            while beside in names_upstream:
                beside += "_"
            conversions.append(Conversion(column, beside, old, replace(new, name=column.name)))
    if not conversions:
        return None
    _refuse_own(
        present, after, conversions, {check.name.lower() for check in (*before.checks, *after.checks)}
    )
    table = change.at(tracked)
    left = tuple(
        conversion.beside for conversion in conversions if present.column(conversion.beside) is not None
    )
    add, swap = (
        _add(change, table, left, conversions),
        _swap(change, table, present, (before, after), conversions),
    )
    return Plan(change, table, tuple(conversions), add, swap, left)


def _may_be_cut(old: Column, present: PresentColumn, change: Change) -> bool:
    """Whether it was made longer downstream for texts that are there as their bytes, and is not any more."""
    return present.collation.startswith("latin1") and not same_type(old, present, change.server)


def _refuse_own(present: Present, after: Definition, conversions: list[Conversion], checks: set[str]) -> None:
    """What only the downstream has may hang on a converted column: a stored column would not be computed
    anew, a CHECK would go with the column. `checks`: those of the upstream."""
    for column in present.columns:
        stored = re.search("STORED|PERSISTENT", column.extra.upper()) and after.column(column.name) is None
        if stored:  # TiDB changes no column that one hangs on, but this one is not TiDB's
            raise NotDerivable(
                f"the downstream's own stored column {column.name} may hang on a converted one"
            )
    converted = {
        conversion.present.name.lower()
        for conversion in conversions
        if ti.JSON not in (conversion.source.type.tp, conversion.target.type.tp)
    }
    of_columns = {column.name.lower() for column in present.columns} - converted  # a JSON's, in MariaDB
    if own := sorted(present.checks - checks - of_columns):
        raise NotDerivable(f"the downstream's own CHECK {own[0]} may hang on a converted column")


def _family(text: str) -> str:
    """Of a type as a server prints it: what is read alike."""
    word = text.lower().partition("(")[0].split()[0]
    if word in ("enum", "set"):  # numbers are read, which are those of the members
        return text.replace("\\\\", "\\")
    if word.endswith(("text", "char", "json")):
        return "text"
    return next((end for end in ("int", "binary", "blob") if word.endswith(end)), word).replace(
        "blob", "binary"
    )


def _add(change: Change, table: tuple[str, str], left: tuple[str, ...], conversions: list[Conversion]) -> str:
    """The columns beside; what an earlier attempt left goes."""
    clauses = [f"DROP COLUMN {name_of(name)}" for name in left]
    for conversion in conversions:
        collation = collate_clause(conversion.target, change.server, [])
        kind = type_of(conversion.target)
        clauses.append(f"ADD COLUMN {name_of(conversion.beside)} {kind}{collation} NULL DEFAULT NULL")
    return f"ALTER TABLE {name_of(*table)} {', '.join(clauses)}"


def _swap(
    change: Change,
    table: tuple[str, str],
    present: Present,
    both: tuple[Definition, Definition],
    conversions: list[Conversion],
) -> str:
    """New columns in the places of the old ones, with the keys that the old ones had and that stay."""
    was, after = ({key.name.lower(): key for key in definition_.keys} for definition_ in both)
    checks = [check for check in both[change.ran].checks if check.name.lower() in present.checks]
    besides = {conversion.beside for conversion in conversions}
    order = [column.name for column in present.columns if column.name.lower() not in besides]
    names = {conversion.present.name.lower() for conversion in conversions}
    keys = [key for key in present.keys if any(column in names for column, _ in key.parts)]
    clauses = [f"{change.server.drop_check} {name_of(check.name)}" for check in checks]
    clauses += [f"DROP {_key_name(key)}" for key in keys]
    clauses += [f"DROP COLUMN {name_of(conversion.present.name)}" for conversion in conversions]
    for conversion in sorted(conversions, key=lambda conversion: order.index(conversion.present.name)):
        at = order.index(conversion.present.name)
        place = f"AFTER {name_of(order[at - 1])}" if at else "FIRST"
        text = column_clause(conversion.target, change.server, [], auto_increment=bool(keys))
        clauses.append(f"CHANGE COLUMN {name_of(conversion.beside)} {text} {place}")
    for key in keys:
        name = key.name.lower()
        if name in after or name not in was:
            unused = "" if key.used else f" {change.server.invisible}"
            clauses.append(f"ADD {_key_again(key, after.get(name), conversions)}{unused}")
    clauses += [f"ADD {check_clause(check, change.server)}" for check in checks]
    return f"ALTER TABLE {name_of(*table)} {', '.join(clauses)}"


def _key_name(key: PresentKey) -> str:
    return "PRIMARY KEY" if key.name.upper() == "PRIMARY" else f"INDEX {name_of(key.name)}"


def _key_again(key: PresentKey, later: Key | None, conversions: list[Conversion]) -> str:
    """The key as it was; prefixes of columns that are converted are those that they have `later`."""
    if any(not column for column, _ in key.parts):
        raise NotDerivable(f"key {key.name} has an expression besides a column whose values are converted")
    kinds = {conversion.present.name.lower(): conversion.target.type for conversion in conversions}
    parts = []
    for number, (column, length) in enumerate(key.parts):
        kind = kinds.get(column)
        if kind is not None:
            if later is not None and len(later.parts) == len(key.parts):
                length = max(later.parts[number].length, 0)
            if kind.tp not in ti.STRING_TYPES or (kind.tp not in _LONG and length >= kind.flen):
                length = 0
        parts.append(name_of(column) + (f"({length})" if length else ""))
    word = key.kind or ("UNIQUE" if key.unique and key.name.upper() != "PRIMARY" else "")
    return f"{word} {_key_name(key)} ({','.join(parts)})"


# Values --------------------------------------------------------------------------------------------------


def job_of(job: dict[str, Any] | None, commit_ts: Ts, zone: str, offset: str) -> Moments:
    """What casts take from the job. Raises `NotDerivable` for a zone that is not known here."""
    try:
        clock = zone_of(zone, offset)
    except NoCast as error:
        raise NotDerivable(f"{error} is not known here: values cannot be converted") from None
    begin = int((job or {}).get("start_ts") or commit_ts)
    days = {datetime.fromtimestamp(tso.physical_s(ts), clock).date() for ts in (begin, commit_ts)}
    return Moments(clock, datetime.combine(days.pop(), time()) if len(days) == 1 else None)


def fill(connection: Connection, plan: Plan, job: Moments) -> list[str]:
    """Give the columns beside their values; what of them the downstream cannot have.

    Raises `NotDerivable`."""
    table = read_table(connection, *plan.table)
    if table is None:
        raise NotDerivable(f"table {'.'.join(plan.table)} is not there")
    long = any(
        kind.tp in _LONG
        for conversion in plan.conversions
        for kind in (conversion.source.type, conversion.target.type)
    )
    splitter = Splitter(table, key_to_copy(table), _LONG_ROWS if long else _ROWS)
    lost = dict.fromkeys(plan.conversions, 0)
    present = plan.change.present.get(plan.table)
    assert present is not None
    kept = [column.name for column in present.columns if "on update" in column.extra.lower()]
    packet = connection.packet_bytes_max()
    batch_bytes = min(_STATEMENT_BYTES, packet // 2)
    for chunk in splitter.chunks(connection):
        for conversion in plan.conversions:
            where = b" AND ".join(
                part
                for part in (chunk.condition(), b"%b IS NOT NULL" % quote_name(conversion.present.name))
                if part
            )
            for values in _distinct(connection, plan.table, conversion, where, splitter.rows_wanted):
                for some in _batches(conversion, values, job, batch_bytes):
                    statement = _update(plan.table, conversion, kept, where, some)
                    if len(statement) >= packet:  # it would end the session, each time anew
                        raise NotDerivable(
                            f"a value of {conversion} needs a statement of {len(statement)} bytes, and"
                            f" max_allowed_packet of the downstream is {packet}"
                        )
                    connection.run(statement)
                    if conversion.target.type.kind is not ColumnKind.ENUM:  # its member 0 is meant
                        lost[conversion] += int(connection.rows(b"SELECT @@warning_count")[0][0])
    for conversion in plan.conversions:
        source, target = conversion.source, conversion.target  # of NULL each server makes its own time
        if target.type.kind is ColumnKind.TIMESTAMP and source.nullable and not target.nullable:
            nulls = b"SELECT COUNT(*) FROM %b WHERE %b IS NULL"
            names = qualified(*plan.table), quote_name(conversion.present.name)
            lost[conversion] += int(connection.rows(nulls % names)[0][0])
    return [
        f"{conversion}: {count} values that the downstream cannot have"
        for conversion, count in lost.items()
        if count
    ]


def _distinct(
    connection: Connection, table: tuple[str, str], conversion: Conversion, where: bytes, limit: int
) -> Iterator[list[tuple[bytes, bytes]]]:
    """(digest, old value as `_form` shows it), each once, in the order of digests, so many at a time. By the
    values themselves a server would sort, and it takes no more than `max_sort_length` bytes of them."""
    form = _form(conversion)
    query = b"SELECT DISTINCT SHA2(%b,256),%b FROM %b WHERE %b" % (form, form, qualified(*table), where)
    after = b""
    while True:
        shown = connection.printed(query + after + b" ORDER BY 1 LIMIT %d" % limit)
        values = [(digest, value) for digest, value in shown if digest is not None and value is not None]
        if len(values) < len(shown):  # none of them is NULL
            raise NotDerivable(f"values of {conversion} are too large for the downstream to show them")
        if values:
            yield values
        if len(shown) < limit:
            return
        after = b" AND SHA2(%b,256)>'%b'" % (form, values[-1][0])


def _form(conversion: Conversion) -> bytes:
    """The old value as bytes that are equal only where values are."""
    name, kind = quote_name(conversion.present.name), conversion.source.type.kind
    if kind is ColumnKind.BINARY:
        return b"CONVERT(%b USING binary)" % name  # CAST gives NULL for more than max_allowed_packet
    if kind in (ColumnKind.TEXT, ColumnKind.JSON):
        return b"CONVERT(CONVERT(%b USING utf8mb4) USING binary)" % name
    if kind in _AS_NUMBER:
        name = b"CAST(%b AS UNSIGNED)" % name
    elif kind in (ColumnKind.FLOAT, ColumnKind.DOUBLE):
        name = floating_text(conversion.present.type, name)
    return b"CAST(CAST(%b AS CHAR) AS BINARY)" % name


def _value(conversion: Conversion, shown: bytes) -> Value:
    kind = conversion.source.type.kind
    if kind is ColumnKind.TEXT:
        return Charset(conversion.present.collation.partition("_")[0]).meant(shown)
    if kind in (ColumnKind.BINARY, ColumnKind.JSON):
        return shown
    try:
        if kind in _INTEGERS:
            return int(shown)
        if kind in (ColumnKind.FLOAT, ColumnKind.DOUBLE):
            return float(shown)
        return Decimal(shown.decode()) if kind is ColumnKind.DECIMAL else shown.decode()
    except (ValueError, InvalidOperation):
        raise NoCast(f"what the downstream has is no {kind.value}") from None


def _batches(
    conversion: Conversion, values: list[tuple[bytes, bytes]], job: Moments, bytes_max: int
) -> Iterator[list[tuple[bytes, bytes]]]:
    """(digest of the old value, literal of the new one), as many as a statement takes."""
    batch: list[tuple[bytes, bytes]] = []
    size = 0
    for digest, shown in values:
        try:
            new = cast(_value(conversion, shown), conversion.source.type, conversion.target.type, job)
        except (NoCast, ArithmeticError, ValueError) as error:  # errors of Python's have the value in them
            reason = error if isinstance(error, NoCast) else "one is of a form that is not known"
            raise NotDerivable(f"values of {conversion} cannot be converted: {reason}") from None
        literal = _literal(new, conversion.target.type)
        if new is None and not conversion.target.nullable:
            raise NotDerivable(f"values of {conversion} cannot be converted: one becomes NULL")
        needs = len(digest) + len(literal) + _CASE_BYTES
        if batch and size + needs > bytes_max:
            yield batch
            batch, size = [], 0
        batch.append((digest, literal))
        size += needs
    if batch:
        yield batch


def _update(
    table: tuple[str, str],
    conversion: Conversion,
    kept: list[str],
    where: bytes,
    some: list[tuple[bytes, bytes]],
) -> bytes:
    form = b"SHA2(%b,256)" % _form(conversion)
    cases = b" ".join(b"WHEN '%b' THEN %b" % each for each in some)
    sets = [b"%b=CASE %b %b END" % (quote_name(conversion.beside), form, cases)]
    sets += [b"%b=%b" % (quote_name(name), quote_name(name)) for name in kept]
    bounds = b"%b BETWEEN '%b' AND '%b'" % (form, some[0][0], some[-1][0])
    return b"UPDATE %b SET %b WHERE %b AND %b" % (qualified(*table), b",".join(sets), where, bounds)


def _hex(value: bytes) -> bytes:
    return b"X'%b'" % value.hex().encode()


def _literal(value: Value, kind: FieldType) -> bytes:
    if value is None:
        return b"NULL"
    if isinstance(value, bytes):
        if kind.kind is ColumnKind.BINARY:
            return _hex(value)
        charset = Charset(kind.charset)
        fits = kind.tp in _LONG or len(value) <= kind.flen
        as_bytes = charset.keeps_bytes and fits and not charset.holds(value)
        return (b"_%b " % kind.charset.encode() if as_bytes else b"_utf8mb4 ") + _hex(value)
    if isinstance(value, str):
        return b"'%b'" % value.encode()
    if isinstance(value, float):
        return (f"{value!r}" if "e" in f"{value!r}" else f"{value!r}e0").encode()
    return (f"{value:f}" if isinstance(value, Decimal) else str(value)).encode()


# Same: type changes whose values any server converts as TiDB does.
# Holds  a change that keeps every value is the same everywhere: more digits, more length, more members.
#        MariaDB cuts integers as TiDB does, which was measured. All else is not the same

_BYTES: Final = {ti.TINY: 1, ti.SHORT: 2, ti.INT24: 3, ti.LONG: 4, ti.LONGLONG: 8}
_LONG_BYTES: Final = {
    ti.TINY_BLOB: 255,
    ti.BLOB: 65535,
    ti.MEDIUM_BLOB: (1 << 24) - 1,
    ti.LONG_BLOB: (1 << 32) - 1,
}


def is_same(source: FieldType, target: FieldType, dialect: Dialect) -> bool:
    if dialect is Dialect.TIDB:
        return True
    was, kind = source.kind, target.kind
    if was in INTEGER_KINDS and kind in INTEGER_KINDS and ColumnKind.YEAR not in (was, kind):
        return dialect is Dialect.MARIADB or _keeps_integers(source, target)
    if was is not kind:
        return False
    if kind in (ColumnKind.DATETIME, ColumnKind.TIMESTAMP, ColumnKind.TIME):
        return target.fsp >= source.fsp
    if kind is ColumnKind.DECIMAL:
        return _keeps_decimals(source, target)
    if kind in (ColumnKind.ENUM, ColumnKind.SET):
        return target.elems[: len(source.elems)] == source.elems
    if kind is ColumnKind.BIT:
        return target.flen >= source.flen
    if kind in (ColumnKind.TEXT, ColumnKind.BINARY):
        return _keeps_strings(source, target)
    if kind in (ColumnKind.FLOAT, ColumnKind.DOUBLE):
        plain = target.flen < 0 or target.decimal < 0 or _digits(source) == _digits(target)
        return plain and (source.unsigned or not target.unsigned)
    return kind is not ColumnKind.UNKNOWN


def _digits(kind: FieldType) -> tuple[int, int]:
    return kind.flen, kind.decimal


def _keeps_integers(source: FieldType, target: FieldType) -> bool:
    have, had = _BYTES[target.tp], _BYTES[source.tp]
    if source.unsigned == target.unsigned:
        return have >= had
    return source.unsigned and have > had


def _keeps_decimals(source: FieldType, target: FieldType) -> bool:
    whole, places = source.flen - source.decimal, source.decimal
    signed = source.unsigned or not target.unsigned
    return signed and target.decimal >= places and target.flen - target.decimal >= whole


def _keeps_strings(source: FieldType, target: FieldType) -> bool:
    """A longer one, of the same character set or of one that has all its characters."""
    charsets = source.charset.replace("utf8mb3", "utf8"), target.charset.replace("utf8mb3", "utf8")
    if charsets[0] != charsets[1] and charsets != ("utf8", "utf8mb4") and charsets[0] != "ascii":
        return False
    fixed = source.tp == ti.STRING, target.tp == ti.STRING
    if fixed[1] and not fixed[0]:  # what ends in spaces does not any more
        return False
    return _room(target) >= _room(source, largest=target.tp in _LONG_BYTES)


def _room(kind: FieldType, *, largest: bool = False) -> int:
    """Characters of a text, or bytes; `largest`: as many bytes as they can take."""
    if kind.tp in _LONG_BYTES:
        return _LONG_BYTES[kind.tp]
    return max(kind.flen, 0) * (4 if largest and kind.charset != "binary" else 1)
