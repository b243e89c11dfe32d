"""What nodes could say to get at whoever looks at a page: every text of a document is an attack."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.observe.recent_events import Event

ATTACK = "<script>alert(1)</script>'\"&</code></title></style><img src=x onerror=alert(1)>\u202e\x1b]\ud800"


def filled(form: type[Struct], text: str = ATTACK, copies: int = 2, number: int = 7) -> Any:
    """A struct in which everything that could be there is: every text is `text`, lists and dictionaries have
    `copies` items."""
    return form(**{one.name: _value(one.type, text, copies, number) for one in msgspec.structs.fields(form)})


def _value(form: Any, text: str, copies: int, number: int) -> Any:
    if get_origin(form) in (Union, UnionType):
        form = next(one for one in get_args(form) if one not in (NoneType, msgspec.UnsetType))
    if isinstance(form, type) and issubclass(form, Struct):
        return filled(form, text, copies, number)
    if get_origin(form) is list:
        return [_value(get_args(form)[0], text, copies, number) for _ in range(copies)]
    if get_origin(form) is dict:
        of = get_args(form)[1]
        return {f"{text}{one}": _value(of, text, copies, number) for one in range(copies)}
    return text if form is str else form(number) if form in (bool, int, float) else {}


def view(names: Sequence[str] = (ATTACK,), *, alive: bool | None = True, host: str = ATTACK) -> ClusterView:
    """Pumps and drainers of these names, at addresses that are attacks too."""
    entries = {name: NodeEntry(NodeStatus(name, host, ATTACK, 7 << 18, 8 << 18), 1, alive) for name in names}
    return ClusterView(1, entries, entries)


def events(number: int = 3, text: str = ATTACK) -> list[Event]:
    return [Event(1.0 + one, text, text, text, text, 2) for one in range(number)]
