"""Loopback: the marks that a drainer leaves downstream, so that two-way replication does not turn in circles.

In     an open downstream connection, the lane that begins a transaction
Out    one changed row of `retl._drainer_repl_mark` in every transaction of rows
Holds  a lane changes its own row only (id = lane number), so lanes never wait for each other here; a row that
       is missing is written on the spot: no transaction goes out without its mark
Why    the other direction's drainer drops every transaction that has a row of this table with its channel
       (`mark_rows`). DDL carries no mark: exactly one direction may have `sync-ddl = true`

Names, columns and texts are those of the Go drainer; both kinds may face each other. What a drainer writes
about itself (checkpoint, lanes) does not replicate while loopback control is on.
"""

from __future__ import annotations

from typing import Final

from drainer import metrics
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import NoSuchTable, SessionError, safe_text
from drainer.stream.translate.row_filter import MARK_SCHEMA, MARK_TABLE
from tidb_binlog.errors import DownstreamError, Unavailable
from tidb_binlog.observe import log

logger = log.get("drainer.loopback")

_NAME: Final = f"{MARK_SCHEMA}.{MARK_TABLE}".encode()
CREATE_DATABASE: Final = b"create database IF NOT EXISTS %b;" % MARK_SCHEMA.encode()
CREATE_TABLE: Final = (
    b"CREATE TABLE If Not Exists %b (id bigint not null,channel_id bigint not null DEFAULT 0,"
    b" val bigint DEFAULT 0, channel_info varchar(64) ,PRIMARY KEY (id,channel_id));" % _NAME
)


class LoopbackMarks:
    """Marks of one channel. Used on whatever connection and thread writes; holds no state."""

    def __init__(self, channel_id: int) -> None:
        self.channel_id = channel_id

    def prepare(self, connection: Connection, lanes: int) -> None:
        """Create the mark table where it is missing and write the rows of `lanes` lanes; commits.

        Raises PyMySQL errors as they come.
        """
        connection.run(CREATE_DATABASE)
        connection.run(CREATE_TABLE)
        rows = b",".join(b"(%d,%d,1,'')" % (lane, self.channel_id) for lane in range(lanes))
        connection.run(b"REPLACE INTO %b(id,channel_id,val,channel_info)  VALUES %b" % (_NAME, rows))
        connection.commit()

    def open(self, target: Target, lanes: int) -> None:
        """`prepare` on a connection of its own."""
        connection = connect(target)
        try:
            self.prepare(connection, lanes)
        finally:
            connection.close()

    def close(self, target: Target) -> None:
        """`remove` on a connection of its own. Rows that stay do no harm: errors are only logged."""
        try:
            connection = connect(target)
            try:
                self.remove(connection)
            finally:
                connection.close()
        except (SessionError, Unavailable, DownstreamError) as error:
            reason = safe_text(error) if isinstance(error, SessionError) else str(error)
            logger.warning("mark rows stay downstream", channel=self.channel_id, reason=reason)

    def begin(self, connection: Connection, lane: int) -> None:
        """First statement of a transaction: mark it. `DownstreamError` where it cannot be marked."""
        try:
            matched = connection.run(
                b"update %b set val=val+1 where id=%d and channel_id=%d limit 1;"
                % (_NAME, lane, self.channel_id),
            )
            if matched != 1:
                self._write_missing(connection, lane)
        except NoSuchTable:
            raise DownstreamError(
                f"{MARK_SCHEMA}.{MARK_TABLE} is gone downstream: without marks rows would come "
                "back from there",
                hint="start the drainer again, it makes the table",
            ) from None

    def _write_missing(self, connection: Connection, lane: int) -> None:
        connection.run(
            b"INSERT INTO %b(id,channel_id,val,channel_info) VALUES (%d,%d,1,'')"
            b" ON DUPLICATE KEY UPDATE val=val+1" % (_NAME, lane, self.channel_id),
        )
        metrics.MARKS_MISSING.inc()
        logger.warning(
            "the lane's mark row was missing, it is written anew", lane=lane, channel=self.channel_id
        )

    def remove(self, connection: Connection) -> None:
        """Take the channel's rows away, when the drainer ends; commits."""
        connection.run(b"delete from %b where channel_id = %d " % (_NAME, self.channel_id))
        connection.commit()
