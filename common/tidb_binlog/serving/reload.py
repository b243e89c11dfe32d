"""Reload: a running daemon reads its configuration again (SIGHUP, `PUT /reload`).

Holds   a file that cannot be taken changes nothing: every live option that changed is checked and prepared
        before the first one is put in place. What needs a restart is named, one line each, at every reload
        until it is there, and the rest is taken
Never   ends the daemon: it goes on with what was in force
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from typing import IO, Any, Final, Generic, TypeVar

from tidb_binlog.clock import Clock
from tidb_binlog.config import declaring
from tidb_binlog.config.declaring import options
from tidb_binlog.errors import ConfigError, Rejected
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.observe import log, metrics
from tidb_binlog.status.reload import ReloadStatus
from tidb_binlog.tso import Ts

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Changes:
    """Keys by name of field: options that a reload takes, and options that need a restart."""

    live: dict[str, str]
    fixed: dict[str, str]


def changes(before: Any, after: Any, also_fixed: Collection[str] = ()) -> Changes:
    """What differs. `also_fixed`: live options that are not in this daemon as it is set up."""
    differences = Changes({}, {})
    for name, entry in options(type(before)).items():
        if getattr(before, name) != getattr(after, name):
            takes = entry.live and name not in also_fixed
            (differences.live if takes else differences.fixed)[name] = entry.key or f"-{entry.flag}"
    return differences


def following(before: C, after: C, changed: Changes) -> C:
    """What is in force once the live options are taken. Raises `ConfigError` where they do not go together
    with the ones that stay."""
    mixed: Any = dataclasses.replace(
        before,  # type: ignore[type-var]
        **{name: getattr(after, name) for name in changed.live},
    )
    validate: Callable[[], None] | None = getattr(mixed, "validate", None)
    if changed.live and validate is not None:
        validate()
    return mixed  # type: ignore[no-any-return]


SUCCESSFUL: Final = metrics.gauge(
    "binlog_common_config_last_reload_successful",
    "1 if the configuration file was taken when it was read last.",
)
SUCCESS_TIME: Final = metrics.gauge(
    "binlog_common_config_last_reload_success_timestamp_seconds", "When a reload was last taken; 0: none yet."
)
RELOADS: Final = metrics.counter(
    "binlog_common_config_reloads_total", "Reloads of the configuration file, by result.", ["result"]
)
SUCCESSFUL.set(1.0)  # the start has read it
LOG_FIELDS: Final = ("log_level", "log_file", "log_format")
_logger = log.get("reload")

Commit = Callable[[], Awaitable[int] | None]
Prepare = Callable[[C], Commit]


@dataclass(frozen=True, slots=True)
class Live(Generic[C]):
    """Options that can change while running. `prepare` checks new values, raises `ConfigError` or `Rejected`
    and changes nothing; what it returns puts them in place and cannot fail. Where they are `placed`, it is
    awaited, gives the commit_ts after which they are in force, and may yet be `Rejected`. `always`: prepared
    at every reload, whatever changed. `stale`: keys of options that name a file which has changed."""

    fields: frozenset[str]
    prepare: Prepare[C]
    placed: bool = False
    always: bool = False
    stale: Callable[[C], Iterable[str]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Keys that changed; those that wait for a restart; after which commit_ts rules are in force, None if
    they did not change."""

    keys: list[str]
    commit_ts: Ts | None = None
    needs_restart: list[str] = field(default_factory=list)


class Reload(Generic[C]):
    """`settings` are those in force. `read` loads the configuration as at the start: flags, environment and
    file."""

    def __init__(
        self,
        settings: C,
        read: Callable[[], C],
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.status = ReloadStatus()
        self._read = read
        self._clock = clock
        self._live: list[Live[C]] = []
        self._running = asyncio.Lock()

    def add(
        self,
        fields: Iterable[str],
        prepare: Prepare[C],
        *,
        placed: bool = False,
        always: bool = False,
        stale: Callable[[C], Iterable[str]] = lambda _: (),
    ) -> None:
        """How these options (names of fields, declared `live`) are put in place; `placed` ones at most once.
        Again, `prepare` replaces the one before. A live option without it is only noted in `settings`: what
        looks there when it needs it has the value then."""
        names = frozenset(fields)
        declared = declaring.options(type(self.settings))
        assert all(declared[name].live for name in names), names
        added = Live(names, prepare, placed, always, stale)
        self._live = [*(live for live in self._live if live.fields != names), added]

    @property
    def taken(self) -> frozenset[str]:
        """Options that somebody puts in place."""
        return frozenset[str]().union(*(live.fields for live in self._live))

    @contextlib.asynccontextmanager
    async def kept_out(self) -> AsyncIterator[C]:
        """The settings in force, and no reload meanwhile: for who builds something of them and says only
        afterwards how it is changed."""
        async with self._running:
            yield self.settings

    async def run(self) -> Reloaded:
        """Put what changed in place. Raises `ConfigError` for a file that is wrong, `Rejected` where rules
        cannot change now; nothing is changed then."""
        if self._running.locked():  # the downstream may be away for hours, and the log was rotated
            self._do_always()
            _logger.info("the configuration is read again once what is being built stands")
        async with self._running:
            try:
                reloaded = await self._run()
            except (ConfigError, Rejected) as error:
                _logger.error("the configuration was not taken: all is as it was", error=error)
                self._note(ReloadStatus(ok=False, error=str(error)))
                raise
            except Exception as error:  # nobody expected it, and the alert is to say it all the same
                self._note(ReloadStatus(ok=False, error=f"unexpected {type(error).__name__}: {error}"))
                raise
            for key in reloaded.needs_restart:
                _logger.warning(f"{key}: needs a restart")
            _logger.info("configuration read again", changed=reloaded.keys, rules_behind=reloaded.commit_ts)
            self._note(ReloadStatus(changed=reloaded.keys, needs_restart=reloaded.needs_restart))
            return reloaded

    def _do_always(self) -> None:
        """What every reload does, with the settings in force. What fails, the reload will tell."""
        with contextlib.suppress(ConfigError):
            for commit in [live.prepare(self.settings) for live in self._live if live.always]:
                commit()

    async def on_signal(self) -> None:
        """`run` for who has nobody to answer to."""
        with contextlib.suppress(ConfigError, Rejected):
            await self.run()

    async def _run(self) -> Reloaded:
        fresh = self._read()
        changed = changes(self.settings, fresh)
        taken = following(self.settings, fresh, changed)
        stale = {live.fields: set(live.stale(taken)) for live in self._live}
        touched = [
            live
            for live in self._live
            if live.always or live.fields & changed.live.keys() or stale[live.fields]
        ]
        commits = [(live.placed, live.prepare(taken)) for live in touched]
        commit_ts = None
        for _, commit in sorted(commits, key=lambda entry: not entry[0]):  # what may yet be refused first
            answer = commit()
            commit_ts = commit_ts if answer is None else await answer
        self.settings = taken
        keys = set(changed.live.values()).union(*stale.values())
        return Reloaded(sorted(keys), commit_ts, sorted(changed.fixed.values()))

    def _note(self, status: ReloadStatus) -> None:
        status.time_s = round(self._clock.wall_s(), 3)
        self.status = status
        SUCCESSFUL.set(float(status.ok))
        RELOADS.labels("success" if status.ok else "failure").inc()
        if status.ok:
            SUCCESS_TIME.set(status.time_s)


def add_logging(reload: Reload[Any], stream: IO[str] | None = None) -> None:
    """Let every reload open the log anew, as `logrotate` asks for; `stream`: where it goes without a file."""

    def logging(fresh: Any) -> Commit:
        return log.prepared(fresh.log_level, fresh.log_file, fresh.log_format, stream=stream)

    reload.add(LOG_FIELDS, logging, always=True)
