"""Shown: what the signatures of the whole port show, by the names under which `drainer` exports it.

`Transaction` and `Ddl` of a sink have rows as they are encoded; those of readers have values.

Tests  tests/architecture/test_public_names.py
"""

from drainer.checkpoint.savepoint import Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.ddl.policy import Policy, Ruling
from drainer.ddl.rules import Rule
from drainer.operate.control.hold_state import HoldPoint
from drainer.stream.pull.merged import Spilled
from drainer.txn import Ddl as EncodedDdl
from drainer.txn import LargeTransaction, TableEvents, TableVersion, Tracked
from drainer.txn import Transaction as EncodedTransaction
from tidb_binlog.clock import Clock
from tidb_binlog.status.drainer import LaneStatus, MismatchStatus
from tidb_binlog.table_info import Column as ColumnInfo
from tidb_binlog.table_info import ColumnKind, FieldType, IndexColumn, TableInfo
from tidb_binlog.table_info import Index as IndexInfo

__all__ = [
    "Checkpoint",
    "Clock",
    "ColumnInfo",
    "ColumnKind",
    "EncodedDdl",
    "EncodedTransaction",
    "FieldType",
    "HoldPoint",
    "IndexColumn",
    "IndexInfo",
    "LaneStatus",
    "LargeTransaction",
    "MismatchStatus",
    "Policy",
    "Rule",
    "Ruling",
    "Savepoint",
    "Spilled",
    "TableEvents",
    "TableInfo",
    "TableVersion",
    "Tracked",
]
