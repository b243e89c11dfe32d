"""pumpclient: hands the binlogs of a database, or of any program that orders its changes, to pumps.

    async with await pumpclient.connect("127.0.0.1:2379", strategy="range") as client:
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

from common.tls import TlsConfig
from pumpclient.client import PumpClient, PumpDirectory, connect
from pumpclient.ddl_job import create_database_job, create_table_job
from pumpclient.delivery import Counters
from pumpclient.errors import (
    BinlogTooLarge,
    ClientClosed,
    InvalidBinlog,
    NoPumpRegistered,
    OutcomeUnknown,
    PumpClientError,
    RecoveryTimeout,
    TransactionLost,
    TransactionOver,
    WriteFailed,
)
from pumpclient.options import Options
from pumpclient.publisher import Publisher, WritableUpstream, open_publisher
from pumpclient.roster import PumpView
from pumpclient.skipping import ClientState, Gap, SkipStatus
from pumpclient.sync import SyncPumpClient, connect_sync
from pumpclient.transaction import Kind, Transaction, TransactionState
from pumpclient.transport import PumpTransport, TransportFailure
from pumpclient.write_policy import Failure

__all__ = [
    "BinlogTooLarge",
    "ClientClosed",
    "ClientState",
    "Counters",
    "Failure",
    "Gap",
    "InvalidBinlog",
    "Kind",
    "NoPumpRegistered",
    "Options",
    "OutcomeUnknown",
    "Publisher",
    "PumpClient",
    "PumpClientError",
    "PumpDirectory",
    "PumpTransport",
    "PumpView",
    "RecoveryTimeout",
    "SkipStatus",
    "SyncPumpClient",
    "TlsConfig",
    "Transaction",
    "TransactionLost",
    "TransactionOver",
    "TransactionState",
    "TransportFailure",
    "WritableUpstream",
    "WriteFailed",
    "connect",
    "connect_sync",
    "create_database_job",
    "create_table_job",
    "open_publisher",
]
