"""Row fold: what many changes of one lane come to, per table.

In     changes in commit order
Out    per table the rows to remove, the rows to write, or the ordered operations of a table without key
Holds  removals first, then writes, gives the same contents as the changes one after the other
Why    a row that changed five times in a batch is written once; multi-row statements need sets

Rows of one table may come with several targets: a transaction that ran under an older schema version has
other defaults for columns that its rows lack. They are one table here; each change keeps its own target.

Folding is by the binary identity of the key, never by the server's looser equality: two keys that differ
in bytes but are one key for the server ('abc', 'ABC') stay two entries, and since every removal runs before
every write, `delete 'abc'` and `insert 'ABC'` cannot meet in the wrong order.

    first change of a key   last change   becomes
    insert, moved in        put           a new row                     (born)
    insert, moved in        remove        nothing
    update, remove          put           a row to overwrite
    update, remove          remove        a removal

In a table with further unique keys every row that is not born is removed before any is written: at the
end of a consistent prefix no two live rows share a unique value, so the writes cannot collide even if
values were swapped inside the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from drainer.change import PUT_MOVED, REMOVE, Change, TableTarget


@dataclass(slots=True)
class TableFold:
    """Net effect on one table. `last` keeps the last change of each key, `born` the keys that are new."""

    table: TableTarget
    last: dict[bytes, Change] = field(default_factory=dict)
    born: set[bytes] = field(default_factory=set)
    ordered: list[Change] = field(default_factory=list)  # tables without key

    def removals(self, *, replaying: bool) -> list[Change]:
        """Changes whose key is to be deleted first. `replaying`: rows may be there although born here."""
        everything = self.table.has_other_unique_keys
        return [
            change
            for key, change in self.last.items()
            if (everything or change[1] >= REMOVE) and (replaying or key not in self.born)
        ]

    def writes(self) -> list[Change]:
        """Changes whose image is to be written."""
        return [change for change in self.last.values() if change[1] < REMOVE]


def fold(changes: Iterable[Change]) -> list[TableFold]:
    """Net effect of `changes`, tables in order of first appearance."""
    tables: dict[int, TableFold] = {}
    for change in changes:
        table = change[0]
        table_id = table.version.id
        net = tables.get(table_id)
        if net is None:
            net = tables[table_id] = TableFold(table)
        if not table.keyed:
            net.ordered.append(change)
            continue
        key = change[2]
        if change[1] <= PUT_MOVED and key not in net.last:
            net.born.add(key)
        net.last[key] = change
    return list(tables.values())
