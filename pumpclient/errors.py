"""Errors: what the host application may catch.

    tidb_binlog.errors.BinlogError
    └── PumpClientError
        ├── NoPumpRegistered     (Unavailable)  the registry knows no pump at all
        ├── WriteFailed          (Unavailable)  no pump took the prewrite; the transaction must not commit
        ├── BinlogTooLarge       (Rejected)     the binlog is larger than a pump receives; not retried
        ├── InvalidBinlog        (Rejected)     the payload is no binlog that can be written
        ├── RecoveryTimeout      (Unavailable)  transactions without a prewrite did not end in time
        ├── ClientClosed                        the client or publisher was closed, or never started
        ├── TransactionOver      (Rejected)     the transaction has ended already
        ├── NoTransaction        (Rejected)     the host's connection commits each statement by itself
        ├── InvalidDefinition    (Rejected)     a table, a column or a row that the catalogue does not allow
        │   └── InvalidValue     (Rejected)     a value that its column cannot hold
        ├── TransactionLost      (Conflict)     it was rolled back by others because its lease ran out
        ├── SchemaChanged        (Conflict)     a table of the transaction was altered under its hands
        └── OutcomeUnknown       (Unavailable)  the connection broke while the commit was decided

Each is also the class of `tidb_binlog.errors` in brackets, so a host may catch either. Commit and rollback
binlogs raise none of these for delivery problems: they return False.

Tests  tests/pumpclient/test_surface.py
"""

from __future__ import annotations

from tidb_binlog.errors import BinlogError, Conflict, Rejected, Unavailable


class PumpClientError(BinlogError):
    """Root of everything this library raises on purpose."""


class NoPumpRegistered(PumpClientError, Unavailable):
    """The registry was read and holds no pump in any state."""


class WriteFailed(PumpClientError, Unavailable):
    """No pump took the prewrite in time. A pump that timed out may hold it all the same: roll back."""


class BinlogTooLarge(PumpClientError, Rejected):
    """A pump said RESOURCE_EXHAUSTED: every other one would say the same."""


class InvalidBinlog(PumpClientError, Rejected):
    """The payload cannot be decoded or has no start_ts."""


class RecoveryTimeout(PumpClientError, Unavailable):
    """Binlogs are written again, but transactions whose prewrite was skipped are still open."""


class ClientClosed(PumpClientError):
    """Used after `close`, before it was entered, or on another event loop."""


class TransactionOver(PumpClientError, Rejected):
    """Rows or an end for a transaction that has its end."""


class TransactionLost(PumpClientError, Conflict):
    """Somebody else found the lease expired and rolled the transaction back; that is final."""


class NoTransaction(PumpClientError, Rejected):
    """Changes on this connection would be committed one by one, published or not."""


class InvalidDefinition(PumpClientError, Rejected):
    """No such table or column, one too many, or a type that cannot be published."""


class InvalidValue(InvalidDefinition):
    """A value that its column cannot hold, as a strict server has it. The text says table, column and why."""


class SchemaChanged(PumpClientError, Conflict):
    """Its rows are encoded for a table that was altered since; run the transaction again."""


class OutcomeUnknown(PumpClientError, Unavailable):
    """The commit was asked for and no answer came. Pumps ask the upstream; so may the host."""
