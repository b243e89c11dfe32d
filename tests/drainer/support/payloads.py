"""Transactions of tests as pumps send them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from drainer.relay.relay_log import RelayLog
from drainer.stream.pull.merged import Spilled
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, Transaction
from tidb_binlog.rowcodec.varint import put_uvarint
from tidb_binlog.wire import binlog_pb2

_KINDS = {INSERT: binlog_pb2.Insert, UPDATE: binlog_pb2.Update, DELETE: binlog_pb2.DeleteRow}


def payload_of(transaction: Transaction) -> bytes:
    """The binlog that a translator makes the transaction of."""
    prewrite = binlog_pb2.PrewriteValue(schema_version=1)
    for events in transaction.tables:
        mutation = prewrite.mutations.add(table_id=events.table.id)
        rows = {
            INSERT: mutation.inserted_rows, UPDATE: mutation.updated_rows, DELETE: mutation.deleted_rows
        }  # fmt: skip
        for kind, row in zip(events.kinds, events.rows, strict=True):
            mutation.sequence.append(_KINDS[kind])
            rows[kind].append(row)
    return binlog_pb2.Binlog(
        tp=binlog_pb2.Commit,
        start_ts=transaction.start_ts,
        commit_ts=transaction.commit_ts,
        prewrite_value=prewrite.SerializeToString(),
    ).SerializeToString()


def sent(transaction: Transaction) -> Transaction:
    """With what the pump sent."""
    return replace(transaction, payload=payload_of(transaction))


def spilled(transaction: Transaction) -> Spilled:
    """As a large one lies on disk."""
    payload = payload_of(transaction)
    return Spilled(
        transaction.commit_ts,
        transaction.start_ts,
        len(payload),
        0,
        0,
        lambda offset, size: payload[offset : offset + size],
    )


async def log_large(log: RelayLog, pieces: Sequence[Transaction]) -> None:
    """A large transaction, in whichever way the log takes it."""
    if not log.keeps_payloads:
        for piece in pieces:
            log.append(piece)
            await log.sync()
        return
    (table,) = {events.table for piece in pieces for events in piece.tables}
    events = [one for piece in pieces for one in piece.tables]
    kinds = [kind for one in events for kind in one.kinds]
    rows = [row for one in events for row in one.rows]
    whole = replace(pieces[0], tables=(TableEvents(table, kinds, rows, 0),))
    log.append_large(spilled(whole), [table], len(rows))
    await log.sync()


def number(field: int, value: int) -> bytes:
    """A field of a message, as Dumpling and BR write them."""
    return put_uvarint(field << 3) + put_uvarint(value)
