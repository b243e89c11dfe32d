"""Mark table: the table of marks of two-way replication, made and cleared downstream.

Out    the table `retl._drainer_repl_mark`, with a row for each lane; none of the channel in the end
Why    a drainer of the other direction drops every transaction that has a row of this table with its channel.
       DDL carries no mark: exactly one direction may have `sync-ddl = true`

What a drainer writes about itself (checkpoint, lanes) does not replicate while loopback control is on.

Tests  tests/drainer/mysql/test_mark.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError, safe_text
from drainer.mysql.mark import MARK_SCHEMA, NAME
from tidb_binlog.errors import DownstreamError, Unavailable
from tidb_binlog.late_dataclass import replace
from tidb_binlog.observe import log

logger = log.get("drainer.loopback")

CREATE_DATABASE: Final = b"create database IF NOT EXISTS %b;" % MARK_SCHEMA.encode()
CREATE_TABLE: Final = (
    b"CREATE TABLE If Not Exists %b (id bigint not null,channel_id bigint not null DEFAULT 0,"
    b" val bigint DEFAULT 0, channel_info varchar(64) ,PRIMARY KEY (id,channel_id));" % NAME
)


def open_marks(target: Target, lanes: int = 0) -> None:
    """Create the mark table where it is missing, and write the rows of `lanes` lanes. Nothing is done where
    the target is not marked. Raises what `connect` does, `SessionError`."""
    if target.mark is None:
        return
    with _session(target) as connection:
        connection.run(CREATE_DATABASE)
        connection.run(CREATE_TABLE)
        if lanes:
            rows = b",".join(b"(%d,%d,1,'')" % (lane, target.mark.channel_id) for lane in range(lanes))
            connection.run(b"REPLACE INTO %b(id,channel_id,val,channel_info)  VALUES %b" % (NAME, rows))
            connection.commit()


def close_marks(target: Target) -> None:
    """Take the channel's rows away, when the drainer ends. Rows that stay do no harm: errors are logged."""
    if target.mark is None:
        return
    try:
        with _session(target) as connection:
            connection.run(b"delete from %b where channel_id = %d " % (NAME, target.mark.channel_id))
            connection.commit()
    except (SessionError, Unavailable, DownstreamError) as error:
        reason = safe_text(error) if isinstance(error, SessionError) else str(error)
        logger.warning("mark rows stay downstream", channel=target.mark.channel_id, reason=reason)


@contextlib.contextmanager
def _session(target: Target) -> Iterator[Connection]:
    """What it writes are marks."""
    connection = connect(replace(target, mark=None))
    try:
        yield connection
    finally:
        connection.close()
