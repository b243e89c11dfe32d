"""A Drainer with a relay log is killed at every record, and the recovery after it at every record, too: each
row of a table without key is there once, in both formats.

    python -m tests.crash.relay_recovery [TRANSACTIONS]

Exit status: 0 all were right, 1 one was not.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.app.start_wait import AtWork
from drainer.config.relay_format import FORMATS
from drainer.mysql.connection import Target
from drainer.relay.source import RelaySource
from drainer.stream.pull.merged import Merged
from drainer.txn import Item
from tests.drainer.support import relay_world as world
from tests.drainer.support.apply_life import clean
from tests.drainer.support.recovery import Killed, count, end_sessions, first_life, keyless_stream
from tidb_binlog.errors import BinlogError

ROWS = 5


@contextmanager
def killed_at(record: int) -> Iterator[None]:
    """The recovery ends when it comes to that record."""
    translate, seen = RelaySource.translate, 0

    def counted(self: RelaySource, merged: Merged) -> Item:
        nonlocal seen
        seen += 1
        if seen > record:
            raise Killed
        return translate(self, merged)

    RelaySource.translate = counted  # type: ignore[method-assign]
    try:
        yield
    finally:
        RelaySource.translate = translate  # type: ignore[method-assign]


async def recovered(target: Target, path: Path) -> None:
    """Once those who were killed are gone downstream."""
    while True:
        try:
            await world.recovery(target, path).run()
            return
        except AtWork:
            end_sessions(target)


async def life(target: Target, path: Path, form: str, transactions: int, killed: int) -> list[int]:
    """One Drainer that is killed at an item, and recoveries that are killed at each record. Which of them
    failed."""
    stream = keyless_stream(transactions, ROWS)
    wrong = []
    for record in range(killed):
        clean(target)
        directory = path / f"{form}-{killed}-{record}"
        await first_life(target, directory, stream, killed_at=killed, form=form)
        with killed_at(record):
            try:
                await recovered(target, directory)
            except Killed:
                pass
        await recovered(target, directory)
        wanted = max(killed - 2, 0) * ROWS
        if killed > 2 and count(target) != (wanted, wanted):
            wrong.append(record)
    return wrong


async def campaign(transactions: int, scratch: Path) -> bool:
    server, clean_all, kills = MariaDbServer(), True, 0
    server.start(scratch / "db")
    try:
        target = world.target_of(server)
        for form in FORMATS:
            for killed in range(2, transactions + 2):
                try:
                    wrong: list[int] | str = await life(target, scratch, form, transactions, killed)
                except BinlogError as error:
                    wrong = f"{type(error).__name__}: {error}"
                kills += killed
                clean_all = clean_all and not wrong
                print(
                    f"{form:8} killed at {killed:3}  {'right' if not wrong else f'WRONG: {wrong}'}",
                    flush=True,
                )
    finally:
        server.stop()
    print(f"{kills} Drainers and {kills} recoveries were killed: {'all right' if clean_all else 'WRONG'}")
    return clean_all


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="relay-recovery-") as made:
        sys.exit(not asyncio.run(campaign(int(sys.argv[1]) if sys.argv[1:] else 8, Path(made))))
