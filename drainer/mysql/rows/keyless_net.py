"""Keyless net: what the changes of a table without key come to, as images that come, go and become others.

In     changes in commit order
Out    changes whose image is added, groups of changes whose image is dropped, and with `keeps_rows` pairs:
       the change that found a row downstream, and the one that has its image now
Holds  a row downstream is found once, however often it changed; carried out in the order given, drops first,
       each statement finds a row
Why    equal images are one to the server: a table without key is a multiset

Without `keeps_rows` a row that changes is dropped and added. With it the row stays, for what only the
downstream knows of it. Rows of equal images cannot be told apart: any of them may become the other image.
"""

from __future__ import annotations

from collections.abc import Iterable

from drainer.mysql.rows.change import APPEND, DROP_ONE, OP, Change
from tidb_binlog.late_dataclass import dataclass, field


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
