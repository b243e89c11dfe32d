"""Control: what an operator may change while rows are applied: pause, rate, and what `reload` brings.

Drives  `rate_limit` (core); `Reload` reads the configuration again
Owns    whether rows may go downstream now; a change lasts as long as the process
Holds   an applier asks `admit` before it applies rows. A reload takes effect whole or not at all: every
        changed key is checked and prepared before the first one is put in place, and one that needs a restart
        refuses all
Stops   `let_go` ends every wait, for good: a paused drainer can be stopped
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from common.clock import Clock
from common.config import declaring
from common.errors import Rejected
from common.observe import log
from common.status.drainer import ControlStatus
from drainer import metrics
from drainer.config.options import DrainerConfig
from drainer.control.hold import Hold
from drainer.control.rate_limit import Limits, RateLimit

_logger = log.get("control")

Commit = Callable[[], Awaitable[int] | None]
Prepare = Callable[[DrainerConfig], Commit]
RATE_FIELDS: Final = frozenset({"rate_rows", "rate_bytes"})
LOG_FIELDS: Final = frozenset({"log_level"})


class Control:
    """`holds` is cheap to read: while it is False, `admit` need not be called."""

    def __init__(self, clock: Clock, limits: Limits | None = None) -> None:
        self._clock = clock
        self._rate = RateLimit(limits)
        self._paused = False
        self._let_go = False
        self._changed = asyncio.Event()
        self.hold = Hold(clock)
        """For who compares the downstream."""
        self.waiting_s = 0.0
        """Seconds that rows have waited for the rate limit so far."""
        self.holds = not self._rate.limits.unlimited
        self.on_change: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None

    # -- what the applier asks ---------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def limits(self) -> Limits:
        return self._rate.limits

    @property
    def limited(self) -> bool:
        """Whether rows wait for the rate limit now."""
        return self._rate.wait_s(self._clock.monotonic_s()) > 0

    async def admit(self, rows: int, size: int) -> None:
        """Wait until `rows` with `size` encoded bytes may go downstream; at once when nothing holds them."""
        while self.holds:
            now_s = self._clock.monotonic_s()
            wait_s = None if self._paused else self._rate.wait_s(now_s)
            if wait_s == 0.0:
                self._rate.take(rows, size, now_s)
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            if wait_s is not None:
                self.waiting_s += self._clock.monotonic_s() - now_s

    def let_go(self) -> None:
        """The end has begun: nothing is held any more."""
        self._let_go = True
        self.hold.end("the drainer stops")
        self._update()

    # -- what operators ask ------------------------------------------------------------------------

    def pause(self) -> None:
        """Hold rows and DDL back. Binlogs are still pulled, as far as queues go; nothing is lost."""
        if not self._paused:
            _logger.warning("applying is paused by an operator", resume="PUT /apply/resume")
        self._paused = True
        self._update()

    def resume(self) -> None:
        """Resume after `pause`; what waits after an error is tried again."""
        if self._paused:
            _logger.info("applying is resumed")
        self._paused = False
        self._update()
        self.on_resume()

    def change_rate(self, limits: Limits) -> None:
        """Rows and bytes a second from now on; zeros: as fast as it goes."""
        if limits != self._rate.limits:
            _logger.info("rate limit changed", rows_per_s=limits.rows, bytes_per_s=limits.size)
        self._rate.change(limits, self._clock.monotonic_s())
        self._update()

    def facts(self) -> ControlStatus:
        """For the status."""
        limits = self._rate.limits
        return ControlStatus(
            paused=self._paused,
            rate_rows=limits.rows,
            rate_bytes=limits.size,
            waited_s=round(self.waiting_s, 3),
        )

    def bind_gauges(self) -> None:
        """Let the gauges read the state whenever they are scraped."""
        metrics.CONTROL_PAUSED.set_function(lambda: float(self._paused))
        metrics.CONTROL_RATE_ROWS.set_function(lambda: float(self._rate.limits.rows))
        metrics.CONTROL_RATE_BYTES.set_function(lambda: float(self._rate.limits.size))
        metrics.CONTROL_WAITED_SECONDS.set_function(lambda: self.waiting_s)

    def _update(self) -> None:
        self.holds = not self._let_go and (self._paused or not self._rate.limits.unlimited)
        self._changed.set()
        self.on_change()


@dataclass(frozen=True, slots=True)
class Live:
    """Options that can change while running. `prepare` checks new values, raises `ConfigError` or `Rejected`
    and changes nothing; what it returns puts them in place and cannot fail. Where they are `placed`, it is
    awaited, gives the commit_ts after which they are in force, and may yet be `Rejected`."""

    fields: frozenset[str]
    prepare: Prepare
    placed: bool = False


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Keys that changed; after which commit_ts rules are in force, None if they did not change."""

    keys: list[str]
    commit_ts: int | None = None


class Reload:
    """`read` loads the configuration as at the start: flags, environment and file."""

    def __init__(self, settings: DrainerConfig, read: Callable[[], DrainerConfig]) -> None:
        self.settings = settings
        self._read = read
        self._live: list[Live] = []
        self._running = asyncio.Lock()

    def add(self, fields: Iterable[str], prepare: Prepare, *, placed: bool = False) -> None:
        """Make these options (names of fields of `DrainerConfig`) live; `placed` ones at most once. Again,
        `prepare` replaces the one before."""
        names = frozenset(fields)
        assert names <= declaring.options(DrainerConfig).keys(), names
        self._live = [*(live for live in self._live if live.fields != names), Live(names, prepare, placed)]

    async def run(self) -> Reloaded:
        """Put what changed in place. Raises `ConfigError`, and `Rejected` naming what needs a restart, or
        why rules cannot change; nothing is changed then."""
        async with self._running:
            return await self._run()

    async def _run(self) -> Reloaded:
        fresh = self._read()
        changed = changed_fields(self.settings, fresh)
        known = frozenset[str]().union(*(live.fields for live in self._live))
        if fixed := [key for name, key in changed.items() if name not in known]:
            raise Rejected(
                f"{', '.join(fixed)}: a change of this needs a restart; nothing was changed",
                hint="restart the drainer, or take the change back and reload again",
            )
        touched = [live for live in self._live if live.fields & changed.keys()]
        commits = [(live.placed, live.prepare(fresh)) for live in touched]
        commit_ts = None
        for _, commit in sorted(commits, key=lambda one: not one[0]):  # what may yet be refused first
            answer = commit()
            commit_ts = commit_ts if answer is None else await answer
        self.settings = fresh
        keys = sorted(changed.values())
        _logger.info("configuration read again", changed=keys, rules_behind=commit_ts)
        return Reloaded(keys, commit_ts)


def changed_fields(before: DrainerConfig, after: DrainerConfig) -> dict[str, str]:
    """Key by name of field of what differs."""
    return {
        name: entry.key or entry.flag or name
        for name, entry in declaring.options(DrainerConfig).items()
        if getattr(before, name) != getattr(after, name)
    }


def rate_of(settings: DrainerConfig) -> Limits:
    return Limits(settings.rate_rows, settings.rate_bytes)


def add_own(reload: Reload, control: Control) -> None:
    """The live options that need no other module: rate and log level."""

    def rate(fresh: DrainerConfig) -> Commit:
        limits = rate_of(fresh)
        return lambda: control.change_rate(limits)

    def level(fresh: DrainerConfig) -> Commit:
        number = log.level_number(fresh.log_level)
        return lambda: log.change_level(number)

    reload.add(RATE_FIELDS, rate)
    reload.add(LOG_FIELDS, level)
