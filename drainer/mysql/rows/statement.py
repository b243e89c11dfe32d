"""Statements: the net effect of a batch as multi-row SQL.

Out    statements as bytes, each with the numbers of rows it may affect (None where the server's count says
       nothing), whether it needs the lax session, and the text that the downstream cannot hold
Holds  a statement stays below `bytes_max` unless one row alone is larger
Why    REPLACE is the cheapest text form for a table whose only unique key is the row key (measured); INSERT
       ... ON DUPLICATE KEY UPDATE is as cheap and keeps what only the downstream has; with further unique
       keys rows are deleted first and inserted then, so that a 1062 is drift and not a lost row

What the counts say. DELETE and INSERT count exactly; a row that came and went may be there or not. REPLACE
and ON DUPLICATE KEY UPDATE count one for a new row, one or two for a row that was there: more than that means
that rows were there already. A table without key is a multiset of images: what was added and dropped again in
a batch never goes out, and equal images to drop are one DELETE with a LIMIT.

Nothing here is escaped twice: literals come from `sql_literal`, ready for the fixed session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from drainer.mysql.literal.literals import ENUM_ZERO
from drainer.mysql.literal.quoting import quote_name
from drainer.mysql.rows.change import (
    APPEND,
    DROP_ONE,
    KEY,
    OP,
    PUT_INSERT,
    PUT_MOVED,
    PUTS,
    REMOVE,
    ROW,
    TABLE,
    Change,
    Form,
    TableTarget,
    image_after,
)
from drainer.mysql.rows.row_fold import TableFold
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.table_info import INTEGER_TYPES

ROWS_MAX: Final = 1000
_FINDS_ROWS: Final = (b"DELETE ", b"UPDATE ")
Text = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """`expected`: the least and the most rows that the server may say it affected.

    `foreign_text`: (column, values) whose character set downstream does not have the text. `alone`: rows
    written where none of their keys is any more; 0 where that is not known. `met`: the change whose old image
    it looks for, of a table without key.
    """

    table: TableTarget
    sql: bytes
    expected: tuple[int, int] | None
    lax: bool = False
    foreign_text: Text = ()
    alone: int = 0
    met: Change | None = None

    @property
    def meets_no_month(self) -> bool:
        """Whether rows that it looks for may have a date without month or day."""
        return self.sql.startswith(_FINDS_ROWS) and b"-00" in self.sql

    def may_have_missed(self, affected: int) -> bool:
        """Whether it found less than it should have, or would not say so."""
        if self.expected is None:
            return self.meets_no_month
        return affected < self.expected[0] and self.sql.startswith(_FINDS_ROWS)

    def of_present_columns(self, rows: int) -> Statement | None:
        """The same for so many rows, whatever they have in columns that the image lacks: a DDL that comes
        later in the stream takes these away. None if it lacks none."""
        if self.met is None:
            return None
        plan, row, image = self.met[TABLE].sql, self.met[ROW], "delete" if self.met[OP] == DROP_ONE else "old"
        present = plan.present_predicate(image, row)
        if not present:
            return None
        place = self.sql.rindex(plan.full_row_predicate(image, row))
        sql = self.sql[:place] + present + b" LIMIT %d" % rows
        return replace(self, sql=sql, expected=(rows, rows), met=None)

    def overwrote(self, affected: int) -> bool:
        """Whether rows took the place of others that no event removed. Where events are filtered, that is
        nothing unusual."""
        most = self.expected[1] if self.expected is not None else self.alone
        return bool(most) and affected > most and self.table.keyed and not self.table.version.partial

    def drift(self, affected: int) -> int:
        """Rows that were there and should not, or the reverse; at least so many."""
        if self.expected is None:
            return 0
        least, most = self.expected
        return max(least - affected, affected - most, 0)


def statements(
    folds: Iterable[TableFold],
    bytes_max: int,
    *,
    replaying: bool,
    cut: bool = False,
    removes_new: bool = False,
) -> Iterator[Statement]:
    """All statements of a batch. `replaying`: rows may already be there or be gone (safe mode).
    `removes_new`: rows of new keys may be there, where they are no others: of one that LOAD DATA ... REPLACE
    leaves as it is TiDB says INSERT alone. They count as drift. Not where something downstream would go too.

    `cut`: the batch has a part of a transaction only. What the rows were is known, but a row of another part
    may hold a unique value until its turn comes.
    """
    for net in folds:
        again = replaying or net.table.repeats
        yield from removals(net, bytes_max, replaying=again, cut=cut, removes_new=removes_new)
        yield from writes(net, bytes_max, replaying=again, cut=cut)


def removals(
    net: TableFold, bytes_max: int, *, replaying: bool, cut: bool = False, removes_new: bool = False
) -> Iterator[Statement]:
    """What has to go before anything is written."""
    if net.table.keyed:
        repeats = replaying or net.table.version.partial
        changes_first = net.removals(replaying=repeats, cut=cut)
        may_go = net.table.form is Form.REWRITE and net.table.row_key and not net.table.gentle
        if removes_new and may_go and not repeats:
            changes_first += [
                last for key, last in net.last.items() if last[OP] in PUTS and not net.was_there(key)
            ]
        for table, changes in _by_target(net, changes_first):
            yield from _deletes(net, table, changes, bytes_max, counts=not (repeats or cut))


def writes(net: TableFold, bytes_max: int, *, replaying: bool, cut: bool = False) -> Iterator[Statement]:
    """All the rest; tables without key have nothing else."""
    if not net.table.keyed:
        yield from _keyless(net.ordered, bytes_max)
        return
    repeats = replaying or net.table.version.partial
    absent, present = net.writes(replaying=repeats, cut=cut)
    for table, changes in _by_target(net, present):
        surplus = None if repeats or cut else sum(net.was_there(change[KEY]) for change in changes)
        if table.form is Form.REPLACE:
            yield from _writes(table, _head(table, b"REPLACE INTO "), changes, b"", bytes_max, surplus)
        else:
            head = _head(table, b"INSERT INTO ")
            yield from _writes(table, head, changes, _on_duplicate(table), bytes_max, surplus)
    for table, changes in _by_target(net, absent):
        head = _head(table, b"REPLACE INTO " if repeats or cut else b"INSERT INTO ")
        # The row of the key is gone: what else a REPLACE counts are rows that held a value of another key.
        surplus = None if replaying or cut else 0
        yield from _writes(table, head, changes, b"", bytes_max, surplus, alone=True)


def _by_target(net: TableFold, changes: list[Change]) -> Iterable[tuple[TableTarget, list[Change]]]:
    """Targets of one table may name other columns: a statement has rows of one target."""
    if not changes:
        return ()
    if not net.mixed:
        return ((net.table, changes),)
    groups: dict[TableTarget, list[Change]] = {}
    for change in changes:
        groups.setdefault(change[TABLE], []).append(change)
    return groups.items()


def _cut(
    items: list[bytes], space: int, joint: int = 1, rows_max: int = ROWS_MAX
) -> Iterator[tuple[int, int]]:
    """Ranges of items that fit into `space` bytes with `joint` bytes between them, a thousand at most."""
    start = 0
    size = 0
    for index, item in enumerate(items):
        size += len(item) + joint
        if index > start and (size > space or index - start >= rows_max):
            yield start, index
            start, size = index, len(item) + joint
    if start < len(items):
        yield start, len(items)


# -- tables with a key -----------------------------------------------------------------------------


def _key_literals(table: TableTarget, changes: list[Change]) -> list[bytes]:
    sql = table.sql
    if sql.key_is_literal:
        return [change[KEY] for change in changes]
    by_op: dict[int, Callable[[bytes], bytes]] = {
        REMOVE: sql.key_literal_of_delete,
        PUT_INSERT: sql.key_literal_of_insert,
        PUT_MOVED: sql.key_literal_of_update_new,
    }
    return [by_op.get(op, sql.key_literal_of_update_old)(row) for _, op, _, row, _ in changes]


def _deletes(
    net: TableFold, table: TableTarget, removals: list[Change], bytes_max: int, *, counts: bool
) -> Iterator[Statement]:
    keys = table.sql.key_list
    head = b"DELETE FROM " + table.name + b" WHERE "
    space = bytes_max - len(head) - keys.size_bytes
    literals = _key_literals(table, removals)
    for start, end in _cut(literals, space, keys.joint_bytes, keys.rows_max or ROWS_MAX):
        sql = head + keys.condition(literals[start:end])
        some = removals[start:end]
        least = sum(net.was_there(change[KEY]) for change in some)
        most = least + sum(change[OP] not in PUTS and not net.was_there(change[KEY]) for change in some)
        yield Statement(table, sql, (least, most) if counts else None)


def _head(table: TableTarget, verb: bytes) -> bytes:
    columns = table.sql.column_list
    if table.fillers:
        columns = b",".join([columns, *(quote_name(name) for name, _ in table.fillers)])
    return verb + table.name + b" (" + columns + b") VALUES "


def _on_duplicate(table: TableTarget) -> bytes:
    """Every column, key text too: the server may take another text for the same key."""
    sql = table.sql
    whole_numbers = {column.id for column in sql.key_columns if column.type.tp in INTEGER_TYPES}
    columns = [column for column in sql.stored_columns if column.id not in whole_numbers]
    names = [quote_name(column.name) for column in columns or sql.stored_columns]
    return b" ON DUPLICATE KEY UPDATE " + b",".join(b"%b=VALUES(%b)" % (name, name) for name in names)


def _images(table: TableTarget, changes: list[Change]) -> list[bytes]:
    insert, update = table.sql.insert_literals, table.sql.update_literals
    images = [update(row, split) if split else insert(row) for _, _, _, row, split in changes]
    if not table.fillers:
        return images
    more = b"".join(b"," + literal for _, literal in table.fillers) + b")"
    return [image[:-1] + more for image in images]


def _writes(
    table: TableTarget,
    head: bytes,
    changes: list[Change],
    tail: bytes,
    bytes_max: int,
    surplus: int | None,
    *,
    alone: bool = False,
) -> Iterator[Statement]:
    """Images between `head` and `tail`.

    `surplus`: by how much the count may exceed the rows; None: it says nothing.
    """
    images = _images(table, changes)
    lax: list[bytes] = []
    if table.sql.has_enum:
        lax = [image for image, change in zip(images, changes, strict=True) if _is_lax(table, image, change)]
        if lax:
            apart = set(lax)
            images = [image for image in images if image not in apart]
    foreign = _foreign_text(table, changes) if table.sql.has_narrow_text else ()
    for some, is_lax in ((images, False), (lax, True)):
        for start, end in _cut(some, bytes_max - len(head) - len(tail)):
            sql = head + b",".join(some[start:end]) + tail
            rows = end - start
            expected = None if surplus is None else (rows, rows + min(rows, surplus))
            yield Statement(table, sql, expected, is_lax, foreign, rows if alone else 0)
            foreign = ()


def _is_lax(table: TableTarget, image: bytes, change: Change) -> bool:
    """Whether no strict session takes the image. A text may hold the same token."""
    return ENUM_ZERO in image and table.sql.has_enum_zero(image_after(change), change[ROW])


def _foreign_text(table: TableTarget, changes: list[Change]) -> Text:
    values: Counter[str] = Counter()
    for change in changes:
        values.update(table.sql.foreign_text(image_after(change), change[ROW]))
    return tuple(values.items())


# -- tables without a key --------------------------------------------------------------------------


def _keyless(ordered: list[Change], bytes_max: int) -> Iterator[Statement]:
    """Changes of a table without key: images to drop, then images to add."""
    if all(change[OP] == APPEND for change in ordered):
        net = KeylessNet(ordered)
    else:
        net = keyless_net(ordered, keeps_rows=ordered[0][TABLE].gentle)
    for changes in net.dropped:
        table, op, _, row, _ = changes[0]
        predicate = table.sql.full_row_predicate("delete" if op == DROP_ONE else "old", row)
        count = len(changes)
        sql = b"DELETE FROM " + table.name + b" WHERE " + predicate + b" LIMIT %d" % count
        yield Statement(table, sql, (count, count), met=changes[0])
    for pairs in net.turned:
        yield _turned(*pairs[0], len(pairs))
    groups: dict[TableTarget, list[Change]] = {}
    for change in net.appended:
        groups.setdefault(change[TABLE], []).append(change)
    for table, changes in groups.items():
        yield from _writes(table, _head(table, b"INSERT INTO "), changes, b"", bytes_max, 0)


def _turned(met: Change, image: Change, count: int) -> Statement:
    """So many rows become another image where they are."""
    table, row = image[TABLE], image[ROW]
    predicate = met[TABLE].sql.full_row_predicate("old", met[ROW])
    assignments = table.sql.assignments("new", row)
    sql = b"UPDATE %b SET %b WHERE %b LIMIT %d" % (table.name, assignments, predicate, count)
    lax = table.sql.has_enum and table.sql.has_enum_zero("new", row)
    foreign = _foreign_text(table, [image] * count) if table.sql.has_narrow_text else ()
    return Statement(table, sql, (count, count), lax, foreign, met=met)


# Keyless net: what the changes of a table without key come to, as images that come, go and become others.
# Holds  a row downstream is found once, however often it changed; carried out in the order given, drops
#        first, each statement finds a row
# Why    equal images are one to the server: a table without key is a multiset
# Without `keeps_rows` a row that changes is dropped and added. With it the row stays, for what only the
# downstream knows of it. Rows of equal images cannot be told apart: any of them may become the other image.


@dataclass(slots=True)
class _Row:
    """A row: the change that has its image, and the one that met it downstream, None if it was born."""

    image: Change
    met: Change | None


@dataclass(slots=True)
class KeylessNet:
    """What statements are made of, in this order: drops, rows that turn (by groups of equal pairs), adds."""

    appended: list[Change] = field(default_factory=list)
    dropped: list[list[Change]] = field(default_factory=list)
    turned: list[list[tuple[Change, Change]]] = field(default_factory=list)


def keyless_net(ordered: Iterable[Change], *, keeps_rows: bool) -> KeylessNet:
    """What `ordered` comes to."""
    rows: dict[bytes, list[_Row]] = {}
    dropped: dict[bytes, list[Change]] = {}
    for change in ordered:
        op, met = change[OP], None
        if op != APPEND:
            old = old_literal(change)
            waiting = rows.get(old)
            met = waiting.pop().met if waiting else change
            if met is not None and (op == DROP_ONE or not keeps_rows):
                dropped.setdefault(old_literal(met), []).append(met)
                met = None
        if op != DROP_ONE:
            rows.setdefault(_literal(change), []).append(_Row(change, met))
    net = KeylessNet(dropped=list(dropped.values()))
    turned: dict[tuple[bytes, bytes], list[tuple[Change, Change]]] = {}
    for literal, those in rows.items():
        for row in those:
            if row.met is None:
                net.appended.append(row.image)
            elif (old := old_literal(row.met)) != literal:
                turned.setdefault((old, literal), []).append((row.met, row.image))
    net.turned = [turned[pair] for pair in _in_order(turned)]
    return net


def old_literal(change: Change) -> bytes:
    """The image that a change takes away."""
    table, op, _, row, _ = change
    return table.sql.literals_of("delete" if op == DROP_ONE else "old", row)


def _literal(change: Change) -> bytes:
    """The image that a change leaves."""
    table, _, _, row, split = change
    return table.sql.update_literals(row, split) if split else table.sql.insert_literals(row)


def _in_order(pairs: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Rows that are to leave an image leave it before others get it."""
    leaving: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for pair in pairs:
        leaving.setdefault(pair[0], []).append(pair)
    order: list[tuple[bytes, bytes]] = []
    seen = set()
    for first in list(leaving):
        stack = leaving.pop(first, [])
        while stack:
            pair = stack[-1]
            if pair not in seen:
                seen.add(pair)
                stack.extend(leaving.pop(pair[1], []))
            else:
                order.append(stack.pop())
    return order
