"""binlogctl verify: is the downstream equal to the upstream, while both are written to?

Holds   standard output has the result alone; progress is one line that is written over on a terminal, a line
        now and then elsewhere. The exit code says equal, different, or not everything comparable
Stops   by Ctrl-C; the same command goes on with what is left
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from binlogctl.cli.command_line import Call, check_path
from binlogctl.cli.commands import DIFFERS, DONE, JSON, NOT_COMPARABLE
from binlogctl.cli.settings import CtlSettings
from binlogctl.net import drainer_file
from drainer.places.place import check_readable
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, FlagError
from tidb_binlog.observe import log, show

if TYPE_CHECKING:
    from drainer.compare.report.repair.repair_file import RepairFile
    from drainer.compare.report.repair.repair_now import ToMend
    from drainer.compare.verify.live import DrainerLag, LiveVerification
    from drainer.compare.verify.result import Name, RowDifference, TableResult, Verification
    from drainer.compare.verify.verifying import Progress
    from drainer.config.options import DrainerConfig
    from drainer.points.snapshot.drainer_hold import DrainerHold
    from tidb_binlog.etcd.registry import EtcdRegistry
    from tidb_binlog.upstream_port import Upstream

LINE_EVERY_S: Final = 10.0
SHOW_EVERY_S: Final = 0.5
STATE: Final = "verify-state"
NO_STATE: Final = "none"
_OF_SERVERS: Final = ("rate", "retries", "state")
_OF_CHUNKS: Final = (*_OF_SERVERS, "workers")


async def run(call: Call) -> int:
    """Raises `FlagError`, and whatever ends a comparison."""
    from drainer.config.cluster import cluster

    given = call.settings
    check(given)
    settings = drainer_file.read(given.drainer_config, "verify")
    log.setup("error", stream=sys.stderr)
    with contextlib.ExitStack() as ends:
        job = Job(call, settings, ends.enter_context(_shown(quiet=call.output == JSON)))
        if given.repair:
            job.repair = ends.enter_context(await _repair_file(given.repair, settings))
        if given.image:
            return code(await job.with_image())
        async with cluster(settings) as (upstream, nodes):
            if given.mirror:
                return code(await job.with_mirror(upstream))
            return code(await job.with_upstream(upstream, nodes))


def check(given: CtlSettings) -> None:
    """What makes no sense, before anything is asked. Raises `FlagError`."""
    for name, least in (("rate", -1), ("retries", 0), ("workers", 1)):
        if getattr(given, name) < least:
            raise FlagError(f"{name} is {getattr(given, name)}", hint=f"at least {least}")
    if given.repair_now and (given.at_rest or given.image):
        raise FlagError("-repair-now is for a Drainer that runs", hint="write a -repair FILE")
    if given.mirror and not given.mirror.startswith(("delta://", "iceberg://")):
        raise FlagError(f"-mirror {given.mirror} is no lake", hint="delta://PLACE or iceberg://PLACE")
    if given.mirror and (given.image or given.repair or given.repair_now):
        raise FlagError("-mirror goes with neither -image nor -repair", hint="correct the rows in the lake")
    for flag, place, idle in (("-mirror", given.mirror, _OF_SERVERS), ("-image", given.image, _OF_CHUNKS)):
        for name in idle if place else ():
            if getattr(given, name) != getattr(CtlSettings(), name):
                raise FlagError(f"{flag} goes without -{name}", hint="all its rows are read, once")
    check_path("-state", given.state)
    check_readable(("-image", given.image), ("-archive", given.archive))


def code(result: Verification) -> int:
    from drainer.compare.verify.result import State

    return {State.EQUAL: DONE, State.DIFFERS: DIFFERS, State.NOT_COMPARABLE: NOT_COMPARABLE}[result.state]


class Job:
    """One comparison, and what is done with its result."""

    def __init__(self, call: Call, settings: DrainerConfig, shown: ProgressLine) -> None:
        self._call = call
        self._settings = settings
        self._shown = shown
        self._names = [name for name in map(str.strip, call.settings.tables.split(",")) if name]
        self.repair: RepairFile | None = None
        self._to_mend: dict[Name, ToMend] = {}

    async def with_image(self) -> Verification:
        from drainer.compare.verify.image_comparison import ImageVerification
        from drainer.config.downstream import target_of
        from drainer.reading.subscribe.table_choice import read_patterns

        verification = ImageVerification(
            target_of(self._settings),
            self._call.settings.image,
            self._settings.checkpoint_schema,
            read_patterns(self._names),
            on_difference=self._take,
            on_progress=self._shown.take,
        )
        return await self._said(await asyncio.to_thread(verification.run))

    async def with_mirror(self, upstream: Upstream) -> Verification:
        from drainer.compare.verify.mirror_comparison import MirrorVerification
        from drainer.config.lake_options import ICEBERG
        from drainer.reading.subscribe.table_choice import read_patterns

        given = self._call.settings
        form, _, place = given.mirror.partition("://")
        settings = replace(self._settings, db_type=form, warehouse=place)
        settings.check_lake(is_iceberg=form == ICEBERG)
        verification = MirrorVerification(
            settings,
            upstream,
            given.workers,
            read_patterns(self._names),
            at_rest=given.at_rest,
            on_difference=self._take,
            on_progress=self._shown.take,
        )
        return await self._said(await verification.run())

    async def with_upstream(self, upstream: Upstream, nodes: EtcdRegistry) -> Verification:
        from drainer.compare.verify.live import DrainerLag
        from drainer.points.snapshot.drainer_hold import DrainerHold, locate_drainer

        given = self._call.settings
        hold, lag = None, None
        if not given.at_rest:
            locate = locate_drainer(nodes, self._settings.name)
            hold = DrainerHold(locate, self._settings.tls, SystemClock())
            lag = DrainerLag(locate, self._settings.tls)
        verification = self._verification(upstream, hold, lag)
        result = await self._said(await verification.run())
        if given.repair_now and self._to_mend:
            assert hold is not None
            await self._repair_now(verification, upstream, hold)
        return result

    async def _said(self, result: Verification) -> Verification:
        given = self._call.settings
        self._shown.clear()
        if given.archive:
            result = await asyncio.to_thread(_with_last_touch, result, given.archive)
        self._print(result)
        if self.repair is not None:
            self.repair.finish(result)
            show.print_warning(f"binlogctl: {given.repair} mends {self.repair.rows:,} rows")
            for said in self.repair.refused:
                show.print_warning(f"binlogctl: not mended: {said}")
        return result

    def _verification(
        self, upstream: Upstream, hold: DrainerHold | None, lag: DrainerLag | None
    ) -> LiveVerification:
        from drainer.compare.verify.budget import ROWS_S
        from drainer.compare.verify.live import LiveVerification
        from drainer.compare.verify.verifying import Pace
        from drainer.reading.subscribe.table_choice import read_patterns

        given = self._call.settings
        rate = given.rate if given.rate >= 0 else 0 if lag is None else ROWS_S
        return LiveVerification(
            self._settings,
            upstream,
            hold,
            Pace(workers=given.workers, rows_a_second=rate, retries=given.retries),
            selected=read_patterns(self._names),
            state=_state(given.state, self._settings.data_dir),
            on_difference=self._take,
            on_progress=self._shown.take,
            lag=lag,
        )

    def _take(self, table: TableResult, difference: RowDifference) -> None:
        if self.repair is not None:
            self.repair.add(table, difference)
        if self._call.settings.repair_now:
            from drainer.compare.report.repair.repair_now import ToMend

            self._to_mend.setdefault(table.downstream, ToMend()).add(difference)

    def _print(self, result: Verification) -> None:
        from drainer.compare.report import html_page, json_document, terminal

        path = self._call.settings.report
        if path:
            try:
                Path(path).write_text(html_page.html(result), encoding="utf-8")
            except OSError as error:
                raise ConfigError(
                    f"-report: {path} cannot be written: {error.strerror}", hint="correct -report"
                ) from None
        if self._call.output == JSON:
            show.print_json(json_document.document(result))
        else:
            terminal.print_verification(result)

    async def _repair_now(
        self, verification: LiveVerification, upstream: Upstream, hold: DrainerHold
    ) -> None:
        from drainer.compare.report.repair.fenced_moment import fenced_moment
        from drainer.compare.report.repair.repair_now import repair_now

        tables = [
            (verification.compared[name], differences) for name, differences in sorted(self._to_mend.items())
        ]
        mended = await repair_now(tables, lambda: fenced_moment(self._settings, upstream, hold))
        show.print_warning(
            f"binlogctl: {mended.rows:,} rows were mended, {mended.settled:,} had become right; verify again"
        )
        for said in mended.left:
            show.print_warning(f"binlogctl: not mended: {said}")


def _state(given: str, data_dir: str) -> Path | None:
    """Where progress is kept: named, or in the Drainer's directory where that is on this host."""
    if given:
        return None if given == NO_STATE else Path(given)
    return Path(data_dir) / STATE if os.access(data_dir, os.W_OK) else None


async def _repair_file(path: str, settings: DrainerConfig) -> RepairFile:
    from drainer.compare.report.repair.repair_file import RepairFile
    from drainer.config.downstream import target_of
    from drainer.mysql.connection import connect

    with closing(await asyncio.to_thread(connect, target_of(settings))) as connection:
        return RepairFile(path, connection.dialect)


def _with_last_touch(result: Verification, archive: str) -> Verification:
    from drainer.compare.report.last_touch import with_last_touch
    from drainer.reading.archive.archive import open_archive

    return with_last_touch(result, open_archive(archive))


# Progress ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _shown(*, quiet: bool) -> Iterator[ProgressLine]:
    line = ProgressLine(quiet=quiet)
    try:
        yield line
    finally:
        line.clear()


class ProgressLine:
    """Says now and then how far it is; called by the thread that compares."""

    def __init__(self, *, quiet: bool) -> None:
        self._clock = SystemClock()
        self._began_s = self._said_s = self._clock.monotonic_s()
        self._quiet = quiet
        self._terminal = show.TerminalLine() if sys.stderr.isatty() else None

    def take(self, now: Progress) -> None:
        if self._quiet:
            return
        now_s = self._clock.monotonic_s()
        if now_s - self._said_s < (LINE_EVERY_S if self._terminal is None else SHOW_EVERY_S):
            return
        self._said_s = now_s
        said = line(now, now_s - self._began_s)
        if self._terminal is None:
            show.print_warning(said)
        else:
            self._terminal.show(said)

    def clear(self) -> None:
        if self._terminal is not None:
            self._terminal.clear()


def line(now: Progress, elapsed_s: float) -> str:
    """One line: how much is compared, how fast, what is wrong so far."""
    rate = now.rows / elapsed_s if elapsed_s > 0 else 0.0
    share = f" ({now.rows / now.rows_expected:.0%})" if now.rows_expected else ""
    wrong = f", {now.wrong_tables} tables differ so far" if now.wrong_tables else ""
    again = ", looking again" if now.look else ""
    left = ""
    if now.rows_expected > now.rows > 0 and elapsed_s >= 1:
        left = f", about {(now.rows_expected - now.rows) * elapsed_s / now.rows:,.0f} s left"
    return (
        f"verify: {now.tables_done} of {now.tables} tables, at {now.table}: {now.rows:,} rows{share},"
        f" {rate:,.0f} rows/s{left}{wrong}{again}"
    )
