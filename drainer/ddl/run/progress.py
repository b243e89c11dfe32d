"""DDL progress: what the downstream says of a statement that takes long, and the end of one whose connection
is gone.

Why     a statement continues after its connection broke: who begins it again must wait for its end
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Final

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.server_text import as_listed
from tidb_binlog.errors import BinlogError

PROGRESS_S: Final = 2.0
_POLL_S: Final = 0.2
_TIMEOUT_S: Final = 5.0
_COMPARED: Final = 200  # characters of a statement; lists may cut it
_NO_JOBS: Final = frozenset({1044, 1142, 1227, 8121})


@contextlib.asynccontextmanager
async def told(ask: Callable[[], str], tell: Callable[[str], None]) -> AsyncIterator[None]:
    """While the block lasts, `tell` how far it is now and then, which `ask` blocks to find out; "" at its
    end."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            tell(await asyncio.to_thread(ask))

    asking = asyncio.create_task(repeat())
    try:
        yield
    finally:
        asking.cancel()
        tell("")


def wait_for(connection: Connection, texts: Sequence[str]) -> None:
    """Wait until no other session runs one of the statements. Blocks as long as that takes."""
    starts = {as_listed(text, _COMPARED) for text in texts}
    own = connection.session_id
    while starts:
        listed = connection.rows(
            b"SELECT ID, INFO FROM information_schema.PROCESSLIST WHERE INFO IS NOT NULL"
        )
        if not any(
            int(number) != own and as_listed(str(info), _COMPARED) in starts for number, info in listed
        ):
            return
        connection.rows(b"SELECT SLEEP(%.1f)" % _POLL_S)  # the server's clock will do


def progress_of(target: Target, number: int) -> str:
    """What the server says of the session with this number; "" when it says nothing or cannot be asked."""
    try:
        connection = connect(replace(target, read_timeout_s=_TIMEOUT_S))
    except BinlogError:
        return ""
    with contextlib.closing(connection):
        try:
            if connection.dialect is Dialect.TIDB:
                return _of_jobs(connection)
            return _of_process(connection, number)
        except SessionError:
            return ""


def _of_process(connection: Connection, number: int) -> str:
    query = f"SELECT * FROM information_schema.PROCESSLIST WHERE ID={number}"
    (row, *_) = connection.rows_by_name(query.encode()) or [{}]
    if not row.get("INFO"):
        return ""
    words = [f"{row.get('STATE') or 'running'} for {row.get('TIME') or 0} s"]
    stages = int(row.get("MAX_STAGE") or 0)
    if stages:
        words.append(f"stage {row['STAGE']} of {stages}, {float(row.get('PROGRESS') or 0):.0f} %")
    return ", ".join(words)


def _of_jobs(connection: Connection) -> str:
    try:
        (row, *_) = connection.rows_by_name(b"ADMIN SHOW DDL JOBS 1") or [{}]
    except SessionError as error:
        if error.number in _NO_JOBS:
            return ""
        raise
    if not row:
        return ""
    return (
        f"{row.get('JOB_TYPE')}: {row.get('STATE')}, {row.get('SCHEMA_STATE')}, {row.get('ROW_COUNT')} rows"
    )
