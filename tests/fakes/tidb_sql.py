"""TiDB's SQL: a MariaDB that says it is a TiDB, and shows what was, as `tidb_snapshot` asks for.

Drives  a proxy in front of the server, with threads of its own
Holds   tables of `WITH SYSTEM VERSIONING` are read as they were in the millisecond of the timestamp; other
        tables as they are now. A table without a clustered key wants a column `_tidb_rowid`, which a TiDB has
        hidden (`ROWID`)
        information_schema lists each column and key twice, without ZEROFILL and the lengths of key parts, and
        what `old_t` has for `t`, too: as if that had been renamed away
Stops   the end of the `with` block
"""

from __future__ import annotations

import contextlib
import datetime
import re
import socket
import socketserver
import threading
from collections.abc import Iterator

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from tidb_binlog import tso
from tidb_binlog.net.port import LOOPBACK

ROWID = "_tidb_rowid BIGINT INVISIBLE NOT NULL AUTO_INCREMENT UNIQUE"
_NAME, _OTHER = b"MariaDB", b"TiDB-v8"  # of one length: packets stay as long as they are
_SNAPSHOT = re.compile(rb"SET SESSION tidb_snapshot ?= ?'(\d+)'")
_PIECE = 1 << 16
_LISTED = {
    "STATISTICS": "NON_UNIQUE, INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, NULL AS SUB_PART, INDEX_TYPE,"
    " 'YES' AS IS_VISIBLE",
    "TABLES": "ENGINE, TABLE_TYPE, TABLE_COMMENT, TABLE_COLLATION, CREATE_OPTIONS, TABLE_ROWS, DATA_LENGTH",
    "COLUMNS": "COLUMN_NAME, ORDINAL_POSITION, COLUMN_DEFAULT, IS_NULLABLE, DATA_TYPE, EXTRA,"
    " REPLACE(COLUMN_TYPE, ' zerofill', '') AS COLUMN_TYPE,"
    " CHARACTER_MAXIMUM_LENGTH, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME,"
    " COLUMN_COMMENT, GENERATION_EXPRESSION",
}


def _shown(command: bytes) -> bytes:
    """What the server is asked for in place of a snapshot, or of a table that it does not have so."""
    asked = _SNAPSHOT.search(command)
    if asked is None:
        for name, columns in _LISTED.items():
            place = f"information_schema.{name}"
            if place.encode() in command:
                has_alias = re.search(re.escape(place).encode() + rb" [a-z]\b", command)
                query = f"SELECT TABLE_SCHEMA, TABLE_NAME, {columns} FROM {place}"
                renamed = f"{query} WHERE TABLE_NAME LIKE 'old\\_%'".replace(
                    "TABLE_NAME", "SUBSTR(TABLE_NAME, 5) AS TABLE_NAME", 1
                )
                both = f"({renamed} UNION ALL {query} UNION ALL {query}){'' if has_alias else ' twice'}"
                statement = command[4:].replace(place.encode(), both.encode())
                return len(statement).to_bytes(3, "little") + command[3:4] + statement
        return command
    at = datetime.datetime.fromtimestamp(tso.physical_ms(int(asked[1])) / 1000, datetime.UTC)
    statement = f"\x03SET SESSION system_versioning_asof = '{at:%Y-%m-%d %H:%M:%S.%f}'".encode()
    return len(statement).to_bytes(3, "little") + command[3:4] + statement


@contextlib.contextmanager
def tidb_sql(server: MariaDbServer) -> Iterator[Target]:
    """Where it is. `server` itself is where its rows are changed."""

    class Link(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((server.host, server.port)) as far:
                near: socket.socket = self.request
                near.sendall(far.recv(_PIECE).replace(_NAME, _OTHER))
                back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
                back.start()
                while command := _received(near):
                    far.sendall(_shown(command))
                with contextlib.suppress(OSError):
                    far.shutdown(socket.SHUT_RDWR)
                back.join()

    class Listener(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Listener((LOOPBACK, 0), Link) as listener:
        serving = threading.Thread(target=listener.serve_forever, daemon=True)
        serving.start()
        try:
            yield Target(LOOPBACK, int(listener.server_address[1]), server.user, server.password)
        finally:
            listener.shutdown()
            serving.join()


def _received(near: socket.socket) -> bytes:
    """One packet: several may come at once, and one in pieces."""
    try:
        header = near.recv(4, socket.MSG_WAITALL)
        size = int.from_bytes(header[:3], "little")
        return header + (near.recv(size, socket.MSG_WAITALL) if size else b"")
    except OSError:
        return b""


def _pass_on(far: socket.socket, near: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := far.recv(_PIECE):
            near.sendall(piece)
        near.shutdown(socket.SHUT_RDWR)
