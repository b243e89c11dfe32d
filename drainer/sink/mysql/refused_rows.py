"""Refused rows: which row the downstream does not take, and which one is in its way.

Out    words for the error: both rows by their row keys, the unique key, the commit_ts; values only if allowed
Holds  nothing stays: the table's rows are sent one by one in a transaction that is rolled back, so that the
       server itself says which one it refuses, and shows what is in its way there and then
Why    a batch has many rows, and its error names at most a value, of which the server cuts the end

Asked once a batch is refused for good. What cannot be found out is left out: the server's words stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError
from drainer.mysql.literal.quoting import quote_name
from drainer.mysql.refusal import Refusal, refusal_of
from drainer.mysql.rows.change import OP, PUTS, ROW, TABLE, Change, image_after
from drainer.mysql.rows.column_match import UniqueKey
from drainer.mysql.rows.row_fold import TableFold, fold
from drainer.mysql.rows.statement import Statement, removals, writes
from drainer.mysql.table_reader import read_table
from drainer.sink.mysql.lane_work import Work
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe.printable import one_line

Execute = Callable[[Connection, Statement], int]

VALUE_CHARS_MAX: Final = 64


def described(connection: Connection, work: Work, refusal: Refusal, execute: Execute, *, values: bool) -> str:
    """What to add to the error; "" where it is not known. The transaction is rolled back."""
    if not refusal.what or not refusal.table.keyed:
        return ""
    try:
        table = read_table(connection, *refusal.table.version.downstream)
        broken = [key for key in table.unique_keys if refusal.is_about(key.name)] if table else []
        nets = [net for net in fold(work.changes) if net.table.fold_id == refusal.table.fold_id]
        change = _refused(connection, nets[0], work, refusal, execute) if nets else None
        if change is None:
            return ""
        when = work.range_of(change)
        if not refusal.is_check and broken:
            return _both(connection, change, when, broken[0], values=values)
        return (
            f"; it is {f'the row {_named(connection, change, values=values)}' if values else 'one'} of {when}"
        )
    except (SessionError, BinlogError):
        return ""
    finally:
        with contextlib.suppress(SessionError):
            connection.rollback()


def _refused(
    connection: Connection, net: TableFold, work: Work, refusal: Refusal, execute: Execute
) -> Change | None:
    """The first row that is refused like that; what comes before it is written and not committed."""
    again = work.replaying or net.table.repeats
    for statement in removals(net, 1, replaying=again, cut=work.cut, removes_new=work.removes_new):
        execute(connection, statement)
    for change, row_fold in _alone(net):
        for statement in writes(row_fold, 1, replaying=again, cut=work.cut):
            try:
                execute(connection, statement)
            except SessionError as error:
                other = refusal_of(error, refusal.table, 0, 0)
                if other is None or other.what != refusal.what:
                    raise
                return change
    return None


def _alone(net: TableFold) -> Iterator[tuple[Change, TableFold]]:
    """Each row that is written, as if it were the only one."""
    for key, change in net.last.items():
        if change[OP] in PUTS:
            alone = {key: change}
            yield (
                change,
                replace(net, table=change[TABLE], last=alone, first={key: net.first[key]}, mixed=False),
            )


def _both(connection: Connection, change: Change, when: str, key: UniqueKey, *, values: bool) -> str:
    holder = _holder(connection, change, key)
    columns = ", ".join(one_line(part.column or "an expression") for part in key.parts)
    under = f"under the key {one_line(key.name)} ({columns})"
    if not values:
        way = "a row that is there has its values" if holder is not None else "another has its values"
        return f"; of a row of {when} {way} {under}; with syncer.log-values = true both are named"
    refused = f"; the row {_named(connection, change, values=values)} of {when} is refused"
    if holder is None:
        return f"{refused}, another has its values {under}"
    names = [column.name for column in change[TABLE].sql.key_columns]
    return f"{refused}: the row {_shown(names, holder)} is there with the same values {under}"


def _holder(connection: Connection, change: Change, key: UniqueKey) -> tuple[Any, ...] | None:
    """Row key of the row with the same values, as the server compares them."""
    table, literals = change[TABLE], _literals(change)
    conditions = []
    for part in key.parts:
        literal = literals.get((part.column or "").lower())
        if part.column is None or literal is None:
            return None
        name = quote_name(part.column)
        if part.length is not None:
            name, literal = (b"LEFT(%b,%d)" % (text, part.length) for text in (name, literal))
        conditions.append(b"%b=%b" % (name, literal))
    names = b",".join(quote_name(column.name) for column in table.sql.key_columns)
    query = b"SELECT %b FROM %b WHERE %b LIMIT 1" % (names, table.name, b" AND ".join(conditions))
    return next(iter(connection.rows(query)), None)


def _named(connection: Connection, change: Change, *, values: bool) -> str:
    """`(id=2)`, as the server reads the literals, so that both rows are shown alike."""
    names = [column.name for column in change[TABLE].sql.key_columns]
    if not values:
        return f"({', '.join(map(one_line, names))})"
    literals = _literals(change)
    ((*key_values,),) = connection.rows(
        b"SELECT " + b",".join(literals[name.lower()] or b"NULL" for name in names)
    )
    return _shown(names, key_values)


def _literals(change: Change) -> dict[str, bytes | None]:
    return change[TABLE].sql.literals_by_column(image_after(change), change[ROW])


def _shown(names: list[str], values: Any) -> str:
    pairs = zip(names, values, strict=True)
    return "(" + ", ".join(f"{one_line(name)}={_value(value)}" for name, value in pairs) + ")"


def _value(value: Any) -> str:
    """No octet or sign of it steers a terminal; long ones are cut."""
    if isinstance(value, bytes):
        text = "0x" + value[:VALUE_CHARS_MAX].hex()
    elif isinstance(value, str):
        text = f"'{one_line(value[:VALUE_CHARS_MAX])}'"
    else:
        return str(value)
    return text + "..." if len(value) > VALUE_CHARS_MAX else text
