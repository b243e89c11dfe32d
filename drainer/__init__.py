"""drainer: reads the changes of a database, live and from archives, and applies them downstream.

Everything public is named here; other modules may change. Each name is loaded when it is used first, so that
`import drainer` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from common.rowcodec.row_error import RowError
    from common.rowcodec.values import EnumValue, JsonText, PartialDate, SetValue
    from drainer.changes.model import Column, Ddl, Row, Table, Transaction
    from drainer.reading.archive.archive import Archive, open_archive
    from drainer.reading.errors import (
        BinlogsLost,
        NoSuchTable,
        OutOfOrder,
        ReadingError,
        StreamEnded,
        UpstreamWentBack,
    )
    from drainer.reading.subscribe.subscription import Subscription, subscribe
    from drainer.reading.subscribe.subscription_sync import SyncSubscription, subscribe_sync

__all__ = [
    "Archive",
    "BinlogsLost",
    "Column",
    "Ddl",
    "EnumValue",
    "JsonText",
    "NoSuchTable",
    "OutOfOrder",
    "PartialDate",
    "ReadingError",
    "Row",
    "RowError",
    "SetValue",
    "StreamEnded",
    "Subscription",
    "SyncSubscription",
    "Table",
    "Transaction",
    "UpstreamWentBack",
    "open_archive",
    "subscribe",
    "subscribe_sync",
]

_MODULES = {
    "common.rowcodec.row_error": ("RowError",),
    "common.rowcodec.values": ("EnumValue", "JsonText", "PartialDate", "SetValue"),
    "drainer.changes.model": ("Column", "Ddl", "Row", "Table", "Transaction"),
    "drainer.reading.archive.archive": ("Archive", "open_archive"),
    "drainer.reading.errors": (
        "BinlogsLost",
        "NoSuchTable",
        "OutOfOrder",
        "ReadingError",
        "StreamEnded",
        "UpstreamWentBack",
    ),
    "drainer.reading.subscribe.subscription": ("Subscription", "subscribe"),
    "drainer.reading.subscribe.subscription_sync": ("SyncSubscription", "subscribe_sync"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
