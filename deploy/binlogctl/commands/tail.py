"""Tail: changes of rows as they are committed, a line each.

Drives  a stream of changes without a name: nothing of it is in the registry, and no pump waits for it
Holds   lines in the order of the commits; what is ready is written at once, and nothing is kept back when the
        stream pauses. Who reads slower than changes come slows the pull down
        On a terminal, long values are cut, and nothing in a row can steer it
Stops   by Ctrl-C (exit code 130), at -until, after -limit rows, or when who reads the lines goes away; with
        -until also where a pump is not there without which the end cannot be reached
"""

from __future__ import annotations

import asyncio
import datetime
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON
from tidb_binlog import time_text, tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import FlagError, Unavailable
from tidb_binlog.observe import log, show
from tidb_binlog.observe.printable import in_json

if TYPE_CHECKING:
    from drainer.reading.subscribe.live_stream import Item, LiveStream
    from drainer.stream.rules.row_rule import Where
    from drainer.txn import Ddl, Transaction

QUIET_S: Final = 3.0
"""After so long without a change it is said what the stream waits for, if that is not just a change."""
ABSENT_S: Final = 15.0
"""Who gave an end waits so long for a pump that is paused or dead; one that is restarted is back by then."""
_FLUSH_CHARS: Final = 1 << 16


class TextForm:
    """For people."""

    def __init__(self, zone: datetime.tzinfo | None, *, terminal: bool) -> None:
        from binlogctl.cluster.change_line import VALUE_CHARS, ChangeLines, LineStyle
        from drainer.changes.row_reader import RowReader

        colour = terminal and not os.environ.get("NO_COLOR")
        self._lines = ChangeLines(
            LineStyle(VALUE_CHARS if terminal else 0, colour, aligned=terminal, zone=zone)
        )
        self._reader = RowReader()

    def rows(self, transaction: Transaction) -> Iterator[str]:
        """Write a line for each row, without its end."""
        for events in transaction.tables:
            yield from self._lines.rows(transaction.commit_ts, self._reader.rows(events))

    def ddl(self, ddl: Ddl) -> str:
        return self._lines.ddl(self._reader.ddl(ddl))


class JsonForm:
    """For programs: canal-json with TiCDC's extension, a message a line."""

    def __init__(self) -> None:
        from drainer.formats.messages.canal_json import CanalJson
        from drainer.formats.messages.message import FormatOptions

        self._format = CanalJson(FormatOptions())

    def rows(self, transaction: Transaction) -> Iterator[str]:
        for message in self._format.rows(transaction):
            assert message.value is not None
            yield in_json(message.value.decode())

    def ddl(self, ddl: Ddl) -> str:
        message = self._format.ddl(ddl, ddl.query)
        assert message.value is not None
        return in_json(message.value.decode())


class Output:
    """Lines on standard output; `limit` rows at most, 0: all of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows = 0  # printed so far, or kept
        self._kept: list[str] = []  # what is not written yet
        self._size = 0  # of it, in characters

    def is_full(self) -> bool:
        """Say whether as many rows as asked for are printed."""
        return 0 < self._limit <= self._rows

    def rows(self, lines: Iterator[str]) -> None:
        """Print lines of rows until it is full."""
        for line in lines:
            if self.is_full():
                return
            self._rows += 1
            self.line(line)

    def line(self, line: str) -> None:
        """Print a line, at the latest with the next `flush`."""
        self._kept += (line, "\n")
        self._size += len(line)
        if self._size >= _FLUSH_CHARS:
            self.flush()

    def flush(self) -> None:
        """Raises `BrokenPipeError` when who read it is gone."""
        if self._kept:
            sys.stdout.write("".join(self._kept))
            sys.stdout.flush()
            self._kept, self._size = [], 0


async def run(call: Call) -> int:
    """Raises `FlagError`, and whatever keeps the stream from beginning or going on."""
    from drainer.reading.errors import NoSuchTable
    from drainer.reading.subscribe.subscription import EncodedStream

    settings = call.settings
    log.setup("error", stream=sys.stderr)  # standard output has nothing but changes
    if settings.limit < 0:
        raise FlagError(f"limit is {settings.limit}", hint="give a number of rows, 0: without a limit")
    zone = time_text.zone(settings.time_zone)
    form: TextForm | JsonForm = (
        JsonForm() if call.output == JSON else TextForm(zone, terminal=sys.stdout.isatty())
    )
    stream = EncodedStream(
        settings.pd_urls,
        tables=[name for name in map(str.strip, settings.tables.split(",")) if name],
        start=_moment("from", settings.begin, zone),
        stop=_moment("until", settings.until, zone) if settings.until else None,
        where=_where(settings.where),
        tls=settings.tls,
        upstream=settings.upstream,
    )
    try:
        await stream.open()
    except NoSuchTable as error:
        hint = error.hint.partition("? ")[0] + "?" if "? " in error.hint else "without -tables all are shown"
        raise FlagError(f"-tables: {error.message}", hint=hint) from None
    output = Output(settings.limit)
    try:
        try:
            await _follow(stream.live, form, output, ends=bool(settings.until))
        finally:
            output.flush()  # also what came before a failure
    finally:
        await stream.close()
    return DONE


def _where(text: str) -> Where | None:
    """The condition, for every table that is shown."""
    if not text:
        return None
    from drainer.stream.rules.row_rule import compile_where

    return compile_where(text, "-where")


def _moment(flag: str, text: str, zone: datetime.tzinfo | None) -> int | str:
    """As a stream takes it: times by this command's zone, spans by the upstream's clock."""
    if text in ("now", "oldest") or text.startswith("-") or tso.is_number(text):
        return text
    try:
        return time_text.parse(text, SystemClock().wall_s(), zone) - 1
    except FlagError as error:
        raise FlagError(f"-{flag}: {error.message}", hint=error.hint) from None


async def _follow(live: LiveStream, form: TextForm | JsonForm, output: Output, *, ends: bool) -> None:
    """Until the end of the stream, or of what is wanted of it."""
    from drainer.reading.subscribe.live_stream import Large
    from drainer.txn import Transaction

    while not output.is_full():
        item = live.ready()
        if item is None:
            output.flush()
            item = await _next(live, ends=ends)
            if item is None:
                return
        if isinstance(item, Transaction):
            output.rows(form.rows(item))
        elif isinstance(item, Large):
            for piece in item.pieces:
                output.rows(form.rows(piece))
                if output.is_full():
                    return
                await asyncio.sleep(0)  # Ctrl-C is heard between two pieces
        else:
            output.line(form.ddl(item))


async def _next(live: LiveStream, *, ends: bool) -> Item | None:
    """The next item, None at the end. Says what it waits for, if it is not only a change. Raises
    `Unavailable` where the stream is to end, and a pump that it needs for that is not there."""
    said, absent_s = "", 0.0
    while True:
        try:
            return await asyncio.wait_for(live.next(), QUIET_S)
        except TimeoutError:
            if (waits_for := live.waits_for) != said and waits_for:
                show.print_warning(f"binlogctl: waits for {waits_for}")
            said = waits_for
        absent = live.absent if ends else []
        absent_s = absent_s + QUIET_S if absent else 0.0
        if absent_s >= ABSENT_S:
            raise Unavailable(
                f"-until cannot be reached: pump {', '.join(absent)} is paused or dead, and may hold more",
                hint="start the pump; if it never comes back: `binlogctl forget`",
            )
