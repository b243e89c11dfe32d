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

__all__ = [
    "Archive",
    "Column",
    "Ddl",
    "EnumValue",
    "JsonText",
    "PartialDate",
    "Row",
    "RowError",
    "SetValue",
    "Table",
    "Transaction",
    "open_archive",
]

_MODULES = {
    "common.rowcodec.row_error": ("RowError",),
    "common.rowcodec.values": ("EnumValue", "JsonText", "PartialDate", "SetValue"),
    "drainer.changes.model": ("Column", "Ddl", "Row", "Table", "Transaction"),
    "drainer.reading.archive.archive": ("Archive", "open_archive"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
