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

    first change of a key   last change   becomes
    insert, moved in        put           a new row                     (born)
    insert, moved in        remove        nothing
    update, remove          put           a row to overwrite
    update, remove          remove        a removal

In a table with further unique keys every row that is not born is removed before any is written: at the
end of a consistent prefix no two live rows share a unique value, so the writes cannot collide even if
values were swapped inside the batch. Where something downstream would go with the row (columns of its own,
triggers), a row whose unique values are the same before and after stays and is overwritten.

A part of a transaction alone may end where two rows hold one value: the one that took it later keeps it, the
other gives it up in a further part, or its removal is there. So writes are in the order of the last changes,
each REPLACE removing rows in its way, and after the rows that stay. A row stays only if each of
its changes leaves its values: if another had removed it, the first one here would be where it gives one up.

An image that a later one replaces is never rendered, so not all of it is checked. That loses nothing: what
the downstream holds does not depend on it, and the bytes are those that were written, since the pump
compares the checksum of every record that it reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from drainer.mysql.rows.change import (
    APPEND,
    PUT_INSERT,
    PUT_MOVED,
    PUT_UPDATE,
    REMOVE,
    Change,
    Form,
    TableTarget,
)


@dataclass(slots=True, eq=False)
class TableFold:
    """Net effect on one table. `first` and `last` keep those changes of each key.

    `reborn` are keys that went and came back, `passed` changes before the last one, of a gentle table.
    `mixed`: the changes have several targets. `doubled`: a row came to a key that another had not left.
    """

    table: TableTarget
    last: dict[bytes, Change] = field(default_factory=dict)
    first: dict[bytes, Change] = field(default_factory=dict)
    reborn: set[bytes] = field(default_factory=set)
    ordered: list[Change] = field(default_factory=list)  # tables without key
    mixed: bool = False
    doubled: bool = False
    passed: dict[bytes, list[Change]] = field(default_factory=dict)

    def is_born(self, key: bytes) -> bool:
        """The row was not there before the batch."""
        return self.first[key][1] <= PUT_MOVED

    def removals(self, *, replaying: bool, cut: bool = False) -> list[Change]:
        """Changes whose key is to be deleted first. `replaying`: rows may be there although born here.

        `cut`: these are not all changes of a transaction.
        """
        first, form = self.first, self.table.form
        if form is Form.REPLACE:
            return [
                change
                for key, change in self.last.items()
                if change[1] >= REMOVE and (replaying or first[key][1] > PUT_MOVED)
            ]
        return [
            change
            for key, change in self.last.items()
            if (replaying or first[key][1] > PUT_MOVED)
            and not self._stays(key, change, replaying=replaying, cut=cut)
        ]

    def writes(self, *, replaying: bool, cut: bool = False) -> tuple[list[Change], list[Change]]:
        """Changes whose image is to be written: where no row of the key is then, and where one may be."""
        puts = [(key, change) for key, change in self.last.items() if change[1] < REMOVE]
        if self.table.form is not Form.REWRITE:
            return [], [change for _, change in puts]
        if replaying or not self.table.gentle:
            return [change for _, change in puts], []
        absent: list[Change] = []
        present: list[Change] = []
        for key, change in puts:
            stays = not self.is_born(key) and self._stays(key, change, replaying=False, cut=cut)
            (present if stays else absent).append(change)
        return absent, present

    def _stays(self, key: bytes, change: Change, *, replaying: bool, cut: bool) -> bool:
        """Whether a row that is there is overwritten in place."""
        if change[1] >= REMOVE or key in self.reborn:
            return False
        if self.table.form is not Form.REWRITE:
            return True
        if not self.table.gentle or replaying:
            return False
        if not cut:
            return _same_unique_values(self.first[key], change)
        return all(_same_unique_values(one, one) for one in (*self.passed.get(key, ()), change))


def _same_unique_values(first: Change, last: Change) -> bool:
    """Whether a row has the same values under all further unique keys before and after."""
    if first[1] != PUT_UPDATE:
        return False
    before = first[0].sql.unique_values("old", first[3])
    after = last[0].sql.unique_values("insert" if last[1] == PUT_INSERT else "new", last[3])
    return before is not None and before == after


def fold(changes: Iterable[Change]) -> list[TableFold]:
    """Net effect of `changes`, tables in order of first appearance."""
    tables: list[TableFold] = []
    of_target: dict[TableTarget, TableFold] = {}
    for change in changes:
        net = of_target.get(change[0])
        if net is None:
            net = of_target[change[0]] = _of_table(tables, change[0])
        op = change[1]
        if op >= APPEND:
            net.ordered.append(change)
            continue
        key = change[2]
        last = net.last
        if key not in last:
            net.first[key] = change
        else:
            if op <= PUT_MOVED:
                net.reborn.add(key)
                net.doubled = net.doubled or last[key][1] < REMOVE
            if net.table.gentle:
                net.passed.setdefault(key, []).append(last[key])
            del last[key]  # in the order of the last changes
        last[key] = change
    return tables


def _of_table(tables: list[TableFold], target: TableTarget) -> TableFold:
    for net in tables:
        if net.table.fold_id == target.fold_id:
            net.mixed = True
            return net
    tables.append(TableFold(target))
    return tables[-1]
