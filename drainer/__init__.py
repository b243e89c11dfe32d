"""drainer: reads the changes of a database, live and from archives, and applies them downstream.

Everything public is named here; other modules may change. Each name is loaded when it is used first, so that
`import drainer` costs nothing.

Tests  tests/drainer/test_surface.py
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drainer.changes.model import Column, Ddl, DdlEffect, Row, Table, Transaction, json_value
    from drainer.changes.row_types import RowTypeError
    from drainer.changes.sql_literal import sql_literal
    from drainer.reading.archive.archive import Archive, open_archive
    from drainer.reading.archive.decode.coverage import FileCoverage
    from drainer.reading.errors import (
        BinlogsLost,
        NoSuchTable,
        OutOfOrder,
        ReadingError,
        SnapshotLost,
        StreamEnded,
        UpstreamWentBack,
    )
    from drainer.reading.subscribe.named_reader import NameTaken, ReaderAddress, ReaderStopped
    from drainer.reading.subscribe.reader_position import NotGiven
    from drainer.reading.subscribe.subscription import Subscription, subscribe
    from drainer.reading.subscribe.subscription_sync import SyncSubscription, subscribe_sync
    from drainer.sink import Sink
    from drainer.sink.background import Background
    from drainer.sink.batch.positions import Cursor, PositionFile, PositionTable
    from drainer.sink.batch.protocol import BatchSink, Retry, SinkEnded
    from drainer.sink.context import SinkContext
    from drainer.sink.shown import (
        Checkpoint,
        Clock,
        ColumnInfo,
        ColumnKind,
        EncodedDdl,
        EncodedTransaction,
        FieldType,
        HoldPoint,
        IndexColumn,
        IndexInfo,
        LaneStatus,
        LargeTransaction,
        MismatchStatus,
        Policy,
        Rule,
        Ruling,
        Savepoint,
        Spilled,
        TableEvents,
        TableInfo,
        TableVersion,
        Tracked,
    )
    from tidb_binlog.errors import BinlogError, ConfigError, Corruption, Rejected, Unavailable
    from tidb_binlog.net.tls import TlsConfig
    from tidb_binlog.rowcodec.row_error import RowError
    from tidb_binlog.rowcodec.values import EnumValue, JsonText, PartialDate, SetValue

__all__ = [
    "Archive",
    "Background",
    "BatchSink",
    "BinlogError",
    "BinlogsLost",
    "Checkpoint",
    "Clock",
    "Column",
    "ColumnInfo",
    "ColumnKind",
    "ConfigError",
    "Corruption",
    "Cursor",
    "Ddl",
    "DdlEffect",
    "EncodedDdl",
    "EncodedTransaction",
    "EnumValue",
    "FieldType",
    "FileCoverage",
    "HoldPoint",
    "IndexColumn",
    "IndexInfo",
    "JsonText",
    "LaneStatus",
    "LargeTransaction",
    "MismatchStatus",
    "NameTaken",
    "NoSuchTable",
    "NotGiven",
    "OutOfOrder",
    "PartialDate",
    "Policy",
    "PositionFile",
    "PositionTable",
    "ReaderAddress",
    "ReaderStopped",
    "ReadingError",
    "Rejected",
    "Retry",
    "Row",
    "RowError",
    "RowTypeError",
    "Rule",
    "Ruling",
    "Savepoint",
    "SetValue",
    "Sink",
    "SinkContext",
    "SinkEnded",
    "SnapshotLost",
    "Spilled",
    "StreamEnded",
    "Subscription",
    "SyncSubscription",
    "Table",
    "TableEvents",
    "TableInfo",
    "TableVersion",
    "TlsConfig",
    "Tracked",
    "Transaction",
    "Unavailable",
    "UpstreamWentBack",
    "json_value",
    "open_archive",
    "sql_literal",
    "subscribe",
    "subscribe_sync",
]

_MODULES = {
    "drainer.changes.model": "Column Ddl DdlEffect Row Table Transaction json_value",
    "drainer.changes.row_types": "RowTypeError",
    "drainer.changes.sql_literal": "sql_literal",
    "drainer.reading.archive.archive": "Archive open_archive",
    "drainer.reading.archive.decode.coverage": "FileCoverage",
    "drainer.reading.errors": (
        "BinlogsLost NoSuchTable OutOfOrder ReadingError SnapshotLost StreamEnded UpstreamWentBack"
    ),
    "drainer.reading.subscribe.named_reader": "NameTaken ReaderAddress ReaderStopped",
    "drainer.reading.subscribe.reader_position": "NotGiven",
    "drainer.reading.subscribe.subscription": "Subscription subscribe",
    "drainer.reading.subscribe.subscription_sync": "SyncSubscription subscribe_sync",
    "drainer.sink": "Sink",
    "drainer.sink.background": "Background",
    "drainer.sink.batch.positions": "Cursor PositionFile PositionTable",
    "drainer.sink.batch.protocol": "BatchSink Retry SinkEnded",
    "drainer.sink.context": "SinkContext",
    "drainer.sink.shown": (
        "Checkpoint Clock ColumnInfo ColumnKind EncodedDdl EncodedTransaction FieldType HoldPoint "
        "IndexColumn IndexInfo LaneStatus LargeTransaction MismatchStatus Policy Rule Ruling Savepoint "
        "Spilled TableEvents TableInfo TableVersion Tracked"
    ),
    "tidb_binlog.errors": "BinlogError ConfigError Corruption Rejected Unavailable",
    "tidb_binlog.net.tls": "TlsConfig",
    "tidb_binlog.rowcodec.row_error": "RowError",
    "tidb_binlog.rowcodec.values": "EnumValue JsonText PartialDate SetValue",
}

_EXTRAS = {"drainer.reading.subscribe": "subscribe", "drainer.reading.archive": "arrow"}


if not TYPE_CHECKING:  # for type checkers the names above are all that there are

    def __getattr__(name: str) -> Any:
        for module, names in _MODULES.items():
            if name in names.split():
                value = globals()[name] = getattr(_imported(module, name), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _imported(module: str, name: str) -> ModuleType:
    """Raises `ImportError` that says what to install where a package is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in ("tidb_binlog", "drainer"):
            raise
        extra = next((extra for part, extra in _EXTRAS.items() if module.startswith(part)), "server")
        raise ImportError(
            f"drainer.{name} needs the package {missing}: pip install 'tidb-binlog[{extra}]'", name=missing
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
