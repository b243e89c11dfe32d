"""Verify child: the process that compares for a Drainer, which starts it: `-m drainer.app.verify_child PID`.

Drives  one live verification, over the link to the Drainer; writes the page of its result into the data
        directory
Holds   it has the lowest claim on the CPU, and ends with its Drainer
Stops   killed at any time: the next one goes on with what was equal

Tests   tests/integration/test_first_load.py, tests/drainer/app/test_periodic_verify.py
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Final

from drainer.app.verify_link import ChildLink
from drainer.compare.report import html_page, json_document
from drainer.compare.verify.live import LiveVerification
from drainer.compare.verify.table_work import grids
from drainer.compare.verify.verifying import Pace, Progress
from drainer.config.options import DrainerConfig
from drainer.points.snapshot.drainer_hold import DrainerHold
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.filesystem import replace_file
from tidb_binlog.observe import log
from tidb_binlog.process.die_with_parent import die_with
from tidb_binlog.status.codec import plain
from tidb_binlog.upstream import choice

NICE: Final = 10
TELL_S: Final = 1.0
STATE: Final = "verify-periodic-state"
PAGE: Final = "verify.html"


async def compare(settings: DrainerConfig, link: ChildLink) -> dict[str, Any]:
    """The document of what was found. Raises `BinlogError`."""
    upstream = await choice.connect(choice.check_kind(settings.upstream), settings.pd_urls, tls=settings.tls)
    try:
        verification = LiveVerification(
            settings,
            upstream,
            DrainerHold(_parent, None, SystemClock(), link.ask),
            Pace(workers=1, rows_a_second=settings.verify_rows),
            state=Path(settings.data_dir) / STATE,
            lag=ParentLag(link),
            on_progress=Teller(link).tell,
        )
        result = await verification.run()
    finally:
        await upstream.close()
    replace_file(os.path.join(settings.data_dir, PAGE), html_page.html(result).encode())
    return json_document.document(result)


class ParentLag:
    """Asked over the link."""

    def __init__(self, link: ChildLink) -> None:
        self._link = link

    async def seconds(self) -> float:
        return await asyncio.to_thread(self._link.behind_s)


class Teller:
    """Says now and then how far it is."""

    def __init__(self, link: ChildLink) -> None:
        self._link = link
        self._clock = SystemClock()
        self._said_s = self._clock.monotonic_s()

    def tell(self, now: Progress) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._said_s >= TELL_S:
            self._said_s = now_s
            text = f"{now.tables_done} of {now.tables} tables, at {now.table}: {now.rows:,} rows"
            self._link.say({"progress": text, "grid": plain(grids(now.works))})


async def _parent() -> str:
    return "the other end of the pipe"


def main(parent: int) -> None:
    die_with(parent)
    os.nice(NICE)
    log.setup("error", stream=sys.stderr)
    link = ChildLink()
    settings = link.settings()
    try:
        result = asyncio.run(compare(settings, link))
    except BinlogError as error:
        link.say({"failed": str(error)})
    else:
        link.say({"result": result})


if __name__ == "__main__":
    main(int(sys.argv[1]))
