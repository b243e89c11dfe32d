"""Row fold: what many changes of one lane come to, per table.

In     changes in commit order
Out    per table the rows to remove, the rows to write, or the ordered operations of a table without key
Holds  removals first, then writes, gives the same contents as the changes one after the other
Why    a row that changed five times in a batch is written once; multi-row statements need sets

Rows of one table may come with several targets: a transaction that ran under an older schema version has
other defaults for columns that its rows lack, and several tables upstream may go to one downstream. They are
one table here; each change keeps its own target.

Folding is by the binary identity of the key, never by the server's looser equality: two keys that differ
in bytes but are one key for the server ('abc', 'ABC') stay two entries, and since every removal runs before
every write, `delete 'abc'` and `insert 'ABC'` cannot run in the wrong order.

    was there before   is there after   becomes
    no                 yes              a new row, written where no row of the key is
    no                 no               a removal of what should not be there
    yes                yes              a row to overwrite, or to remove and write, as the form has it:
    yes                no               a removal

    form       a row to overwrite                                             unless it went and came back
    REPLACE    the REPLACE removes it itself                                  the same
    UPSERT     is updated where it is: what upstream does not know stays      is removed first
    REWRITE    is removed before any is written                               the same
    ... gentle stays and is updated if its unique values are the same         is removed first

Under REWRITE the table has further unique keys. At the end of a consistent prefix no two live rows share a
unique value: with all rows that leave one removed, the writes cannot collide even if values were swapped
inside the batch. A gentle table has something downstream that would go with the row (columns of its own,
triggers).

While replaying a row may be there although it was born here, or be gone: every key counts as there before.
One that came and went may have been there as well: of LOAD DATA ... REPLACE TiDB (seen with 6.6) says INSERT
alone if the row stays the same.

A part of a transaction alone (`cut`) may end where two rows hold one value: the one that took it later keeps
it, the other gives it up in a further part, or its removal is there. So writes are in the order of the last
changes, each REPLACE removing rows in its way, and after the rows that stay. A row stays only if each of
its changes leaves its values: if another had removed it, the first one here would be where it gives one up.

An image that a later one replaces is never rendered, so not all of it is checked. That loses nothing: what
the downstream holds does not depend on it, and the bytes are those that were written, since the pump
compares the checksum of every record that it reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from drainer.mysql.rows.change import (
    ARRIVALS,
    KEY,
    OP,
    PUT_UPDATE,
    PUTS,
    ROW,
    TABLE,
    Change,
    Form,
    TableTarget,
    image_after,
)
from tidb_binlog.late_dataclass import dataclass, field


@dataclass(slots=True, eq=False)
class TableFold:
    """Net effect on one table."""

    table: TableTarget  # of the first change; others have the same `fold_id`
    last: dict[bytes, Change] = field(default_factory=dict)  # of each key, in the order of these changes
    first: dict[bytes, Change] = field(default_factory=dict)  # of each key; the keys are those of `last`
    reborn: set[bytes] = field(default_factory=set)  # keys that went and came back
    ordered: list[Change] = field(default_factory=list)  # all changes of a table without key; else empty
    mixed: bool = False  # the changes have several targets
    doubled: bool = False  # a row came to a key that another had not left
    passed: dict[bytes, list[Change]] = field(default_factory=dict)  # before the last one, of a gentle table

    def was_there(self, key: bytes) -> bool:
        """The row was there before the batch."""
        return self.first[key][OP] not in ARRIVALS

    def removals(self, *, replaying: bool, cut: bool = False) -> list[Change]:
        """Changes whose key is to be deleted first."""
        if self.table.form is Form.REPLACE:
            return [change for change in self.last.values() if change[OP] not in PUTS]
        return [
            change
            for key, change in self.last.items()
            if change[OP] not in PUTS
            or (
                (replaying or self.was_there(key))
                and not self._stays(key, change, replaying=replaying, cut=cut)
            )
        ]

    def writes(self, *, replaying: bool, cut: bool = False) -> tuple[list[Change], list[Change]]:
        """Changes whose image is to be written: where no row of the key is then, and where one may be."""
        puts = [change for change in self.last.values() if change[OP] in PUTS]
        if self.table.form is not Form.REWRITE:
            return [], puts
        if replaying or not self.table.gentle:
            return puts, []
        absent: list[Change] = []
        present: list[Change] = []
        for change in puts:
            key = change[KEY]
            stays = self.was_there(key) and self._stays(key, change, replaying=False, cut=cut)
            (present if stays else absent).append(change)
        return absent, present

    def _stays(self, key: bytes, last: Change, *, replaying: bool, cut: bool) -> bool:
        """Whether a row that is there is overwritten in place."""
        if last[OP] not in PUTS or key in self.reborn:
            return False
        if self.table.form is not Form.REWRITE:
            return True
        if not self.table.gentle or replaying:
            return False
        if not cut:
            return _same_unique_values(self.first[key], last)
        return all(_same_unique_values(change, change) for change in (*self.passed.get(key, ()), last))


def _same_unique_values(first: Change, last: Change) -> bool:
    """Whether a row has the same values under all further unique keys before and after."""
    if first[OP] != PUT_UPDATE:
        return False
    before = first[TABLE].sql.unique_values("old", first[ROW])
    after = last[TABLE].sql.unique_values(image_after(last), last[ROW])
    return before is not None and before == after


def fold(changes: Iterable[Change]) -> list[TableFold]:
    """Net effect of `changes`, tables in order of first appearance."""
    tables: list[TableFold] = []
    of_target: dict[TableTarget, TableFold] = {}
    for change in changes:
        target, op, key, _, _ = change
        net = of_target.get(target)
        if net is None:
            net = of_target[target] = _of_table(tables, target)
        if not target.keyed:
            net.ordered.append(change)
            continue
        last = net.last
        if key not in last:
            net.first[key] = change
        else:
            if op in ARRIVALS:
                net.reborn.add(key)
                net.doubled = net.doubled or last[key][OP] in PUTS
            if net.table.gentle:
                net.passed.setdefault(key, []).append(last[key])
            del last[key]  # so that it comes last
        last[key] = change
    return tables


def _of_table(tables: list[TableFold], target: TableTarget) -> TableFold:
    for net in tables:
        if net.table.fold_id == target.fold_id:
            net.mixed = True
            return net
    tables.append(TableFold(target))
    return tables[-1]
