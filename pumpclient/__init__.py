"""pumpclient: hands the binlogs of a database, or of any program that orders its changes, to pumps.

    async with pumpclient.connect("127.0.0.1:2379", strategy="range") as client:
        start_ts = await oracle.timestamp()
        await client.write_prewrite(start_ts, key, value)  # on a pump's disk now, or WriteFailed
        commit_ts = await oracle.timestamp()  # drawn after the prewrite, never before
        delivered = await client.write_commit(start_ts, commit_ts, key)

`connect_sync` gives the same client to programs without an event loop, `open_publisher` a transaction
stream to programs without TiDB, and `pumpclient.testing` everything in memory for the host's own tests.

It is a guest in the host's process: it logs to the logger `pumpclient` without configuring logging,
installs no signal handler, chooses no event loop and writes no file. What it raises is listed in
`pumpclient.errors`. Everything public is named here; other modules may change.
"""

from pumpclient.client import PumpClient, PumpDirectory, connect
from pumpclient.client_sync import SyncPumpClient, connect_sync
from pumpclient.errors import (
    BinlogTooLarge,
    ClientClosed,
    InvalidBinlog,
    InvalidDefinition,
    InvalidValue,
    NoPumpRegistered,
    NoTransaction,
    OutcomeUnknown,
    PumpClientError,
    RecoveryTimeout,
    SchemaChanged,
    TransactionLost,
    TransactionOver,
    WriteFailed,
)
from pumpclient.opening import Opening
from pumpclient.options import Options
from pumpclient.publish.outcome_table import Outcomes, OutcomeTable
from pumpclient.publish.publisher import Publisher, open_publisher
from pumpclient.publish.publisher_sync import SyncPublisher, SyncTransaction, open_publisher_sync
from pumpclient.publish.settlement import Settled
from pumpclient.publish.transaction import Kind, Transaction, TransactionState
from pumpclient.publish.upstream_port import Definition, History, Transactions, WritableUpstream
from pumpclient.pumps.health import PumpState
from pumpclient.pumps.roster import PumpView
from pumpclient.schema.catalog import Catalog, Table
from pumpclient.schema.ddl_job import create_database_job, create_table_job
from pumpclient.schema.table_definition import ColumnDefinition, column
from pumpclient.send.delivery import Counters
from pumpclient.send.skipping import ClientState, Gap, SkipStatus
from pumpclient.send.transport import PumpTransport, TransportFailure
from pumpclient.send.write_policy import Failure
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.errors import BinlogError, ConfigError, Rejected, Unavailable
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import Column, ColumnKind, FieldType, Index, IndexColumn, TableInfo
from tidb_binlog.upstream.standalone import CatalogChange, Definitions, InDoubt
from tidb_binlog.upstream_port import Committed, RolledBack, TimestampOracle

__all__ = [
    "BinlogError",
    "BinlogTooLarge",
    "Catalog",
    "CatalogChange",
    "ClientClosed",
    "ClientState",
    "ClusterView",
    "Column",
    "ColumnDefinition",
    "ColumnKind",
    "Committed",
    "ConfigError",
    "Counters",
    "Definition",
    "Definitions",
    "Failure",
    "FieldType",
    "Gap",
    "History",
    "InDoubt",
    "Index",
    "IndexColumn",
    "InvalidBinlog",
    "InvalidDefinition",
    "InvalidValue",
    "Kind",
    "NoPumpRegistered",
    "NoTransaction",
    "NodeEntry",
    "NodeStatus",
    "Opening",
    "Options",
    "OutcomeTable",
    "OutcomeUnknown",
    "Outcomes",
    "Publisher",
    "PumpClient",
    "PumpClientError",
    "PumpDirectory",
    "PumpState",
    "PumpTransport",
    "PumpView",
    "RecoveryTimeout",
    "Rejected",
    "RolledBack",
    "RowEncoder",
    "SchemaChanged",
    "Settled",
    "SkipStatus",
    "SyncPublisher",
    "SyncPumpClient",
    "SyncTransaction",
    "Table",
    "TableInfo",
    "TimestampOracle",
    "TlsConfig",
    "Transaction",
    "TransactionLost",
    "TransactionOver",
    "TransactionState",
    "Transactions",
    "TransportFailure",
    "Unavailable",
    "WritableUpstream",
    "WriteFailed",
    "column",
    "connect",
    "connect_sync",
    "create_database_job",
    "create_table_job",
    "open_publisher",
    "open_publisher_sync",
]
