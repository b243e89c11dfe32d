"""Statements: the net effect of a batch as multi-row SQL.

In     folded changes, the server's limits
Out    statements as bytes, each with the number of rows it must affect (None where the server's count
       says nothing) and whether it needs the lax session
Holds  a statement stays below `bytes_max` unless one row alone is larger
Why    REPLACE is the cheapest text form for a table whose only unique key is the row key (measured);
       with further unique keys rows are deleted first and inserted then, so that a 1062 is drift and
       not a lost row; a table without key is changed row by row in order

Nothing here is escaped twice: literals come from `drainer.sql_literal`, ready for the fixed session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from drainer.change import APPEND, DROP_ONE, PUT_INSERT, PUT_MOVED, REMOVE, REPLACE_ONE, Change, TableTarget
from drainer.row_fold import TableFold
from drainer.sql_literal.literals import ENUM_ZERO

ROWS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Statement:
    table: TableTarget
    sql: bytes
    expected: int | None
    lax: bool = False


def statements(folds: Iterable[TableFold], bytes_max: int, *, replaying: bool) -> Iterator[Statement]:
    """All statements of a batch. `replaying`: rows may already be there or be gone (safe mode)."""
    for net in folds:
        if not net.table.keyed:
            yield from _keyless(net.table, net.ordered, bytes_max)
            continue
        yield from _deletes(net.table, net.removals(replaying=replaying), bytes_max, replaying)
        yield from _writes(net.table, net.writes(), bytes_max, replaying)


def _split(
    table: TableTarget, head: bytes, items: list[bytes], tail: bytes, bytes_max: int, *, counted: bool
) -> Iterator[Statement]:
    """`head` + items joined by commas + `tail`, cut by rows and bytes."""
    room = bytes_max - len(head) - len(tail)
    start = 0
    size = 0
    for index, item in enumerate(items):
        if index > start and (size + len(item) + 1 > room or index - start >= ROWS_MAX):
            yield _statement(table, head, items[start:index], tail, counted)
            start, size = index, 0
        size += len(item) + 1
    if start < len(items):
        yield _statement(table, head, items[start:], tail, counted)


def _statement(table: TableTarget, head: bytes, items: list[bytes], tail: bytes, counted: bool) -> Statement:
    sql = head + b",".join(items) + tail
    lax = table.sql.has_enum and ENUM_ZERO in sql
    return Statement(table, sql, len(items) if counted else None, lax)


def _key_literal(change: Change) -> bytes:
    sql = change[0].sql
    op = change[1]
    if op == REMOVE:
        return sql.key_literal_of_delete(change[3])
    if op == PUT_INSERT:
        return sql.key_literal_of_insert(change[3])
    if op == PUT_MOVED:
        return sql.key_literal_of_update_new(change[3])
    return sql.key_literal_of_update_old(change[3])


def _deletes(
    table: TableTarget, removals: list[Change], bytes_max: int, replaying: bool
) -> Iterator[Statement]:
    if not removals:
        return
    head = b"DELETE FROM " + table.name + b" WHERE " + table.sql.key_list + b" IN ("
    literals = [_key_literal(change) for change in removals]
    yield from _split(table, head, literals, b")", bytes_max, counted=not replaying)


def _image(change: Change) -> bytes:
    sql = change[0].sql
    if change[1] == PUT_INSERT or change[1] == APPEND:
        return sql.insert_literals(change[3])
    return sql.update_literals(change[3], change[4])


def _writes(table: TableTarget, writes: list[Change], bytes_max: int, replaying: bool) -> Iterator[Statement]:
    if not writes:
        return
    insert = table.has_other_unique_keys and not replaying
    verb = b"INSERT INTO " if insert else b"REPLACE INTO "
    head = verb + table.name + b" (" + table.sql.column_list + b") VALUES "
    yield from _split(table, head, [_image(change) for change in writes], b"", bytes_max, counted=insert)


def _keyless(table: TableTarget, ordered: list[Change], bytes_max: int) -> Iterator[Statement]:
    """Changes of a table without key, in order; runs of inserts become one statement."""
    head = b"INSERT INTO " + table.name + b" (" + table.sql.column_list + b") VALUES "
    run: list[bytes] = []
    for change in ordered:
        op, row = change[1], change[3]
        if op == APPEND:
            run.append(_image(change))
            continue
        if run:
            yield from _split(table, head, run, b"", bytes_max, counted=True)
            run = []
        sql = change[0].sql
        predicate = sql.full_row_predicate("delete" if op == DROP_ONE else "old", row)
        yield Statement(table, b"DELETE FROM " + table.name + b" WHERE " + predicate + b" LIMIT 1", 1)
        if op == REPLACE_ONE:
            run.append(_image(change))
    if run:
        yield from _split(table, head, run, b"", bytes_max, counted=True)
