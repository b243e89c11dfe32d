"""Savepoint start: what is alike where sinks are built that store no checkpoint row.

Order   the data directory is the cluster's; the sink and the savepoint say where the stream continues, which
        is not ahead of the upstream; then the schema of there, and what translates from there

Tests  tests/drainer/app/test_savepoint_start.py, tests/integration/test_archive.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from drainer import metrics
from drainer.app.build import BuildContext, not_ahead
from drainer.checkpoint.resume import AheadOfUpstream
from drainer.checkpoint.savepoint import Savepoint, adopt_cluster
from drainer.checkpoint.value import Checkpoint
from drainer.config.options import DrainerConfig
from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import Policy
from drainer.sink import Sink
from drainer.sink.runner import Runner
from drainer.sink.savepoint_keeper import savepoint_of
from drainer.stream.rules.rule_history import RuleChange
from drainer.stream.rules.rule_set import read_rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.schema.upstream_schema import read_schema
from drainer.stream.translate.translator import Translator
from tidb_binlog.errors import ConfigError
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from drainer.app.first_rows import FirstRows

S = TypeVar("S", bound=Sink)


class Place(NamedTuple):
    """The stream continues after `commit_ts`, at that schema version (0: not known)."""

    commit_ts: Ts
    schema_version: int = 0


def without_savepoint(settings: DrainerConfig, but: str) -> ConfigError:
    """For a start that would pass over changes."""
    return ConfigError(
        f"{settings.data_dir} has no savepoint, but {but}",
        hint="give it the data-dir of before (a standby of such a sink needs that of the first one, on a disk"
        " that both have); or begin anew: initial-commit-ts says where, or another node-id",
    )


def rehearse_without_position(settings: DrainerConfig) -> None:
    """Of a sink that stores no position, see `Builder`. Raises `ConfigError`."""
    is_told = settings.has_savepoint_row or settings.initial_commit_ts != -1
    if not is_told and Savepoint(settings.data_dir).is_new:
        raise without_savepoint(settings, "another drainer is active")


class SavepointStart:
    """Of one build. Raises `ConfigError`, `ForeignDirectory`."""

    def __init__(self, context: BuildContext) -> None:
        settings = context.settings
        self._context = context
        self.rules = read_rules(settings)
        adopt_cluster(settings.data_dir, context.upstream.cluster_id)
        self.savepoint = savepoint_of(settings, context.upstream.cluster_id)
        if settings.has_savepoint_row:
            context.ends.push_async_callback(asyncio.to_thread, self.savepoint.close)
        self.policy = Policy(ddl_rules.parse(settings.ddl_rules))
        self.first: FirstRows | None = None
        self.tracker = SchemaTracker()  # of where the stream begins, once `translator` was asked for

    async def stored(self) -> Checkpoint | None:
        """The savepoint as it is. Raises `Corruption`."""
        return await self._context.operating.wait_for(lambda: asyncio.to_thread(self.savepoint.load))

    async def first_rows(self, stored: Checkpoint | None, stands_at: int | None = None) -> FirstRows | None:
        """Rows that are to come before the stream, which then begins at theirs. `stands_at`: what a sink that
        stores its position says. Raises `ConfigError` where nothing tells where the drainer before was, or
        whether it had given all of them, and as `open_first_rows`."""
        settings = self._context.settings
        begins_anew = stored is None and not stands_at and self.savepoint.is_new
        # Who begins with all rows passes over nothing.
        begins_anew = begins_anew and (settings.standby or not settings.load)
        if begins_anew and settings.initial_commit_ts == -1 and (left_ts := await self._left_ts()):
            raise without_savepoint(settings, f"drainer {settings.name} was at {left_ts}")
        if self._context.settings.load or self.savepoint.has_snapshot:
            from drainer.app.first_rows import open_first_rows  # once in a drainer's life

            self.first = await open_first_rows(self._context, self.rules, stored, stands_at)
        return self.first

    async def place(self, decide: Callable[[int], Place], what: str, hint: str) -> Place:
        """What `decide` makes of the configuration's initial timestamp. `what` is there, `hint` what to do
        where it is ahead of the upstream: `AheadOfUpstream`."""
        context = self._context

        async def find_place() -> Place:
            now_ts = await context.upstream.oracle.timestamp()
            wanted_ts = context.settings.initial_commit_ts
            if wanted_ts == -1:
                begin_ts = await self._left_ts() or now_ts
                wanted_ts = await asyncio.to_thread(self.savepoint.begin, begin_ts)
            place = decide(wanted_ts)
            if place.commit_ts > now_ts:
                raise AheadOfUpstream(
                    f"{what} of cluster {context.upstream.cluster_id} is at {place.commit_ts}, but the"
                    f" upstream is at {now_ts}: it went back in time, or is another one with the same id",
                    hint=hint,
                )
            return place

        return await not_ahead(lambda: context.operating.wait_for(find_place))

    async def _left_ts(self) -> Ts:
        """Where the drainer of this name was, as the registry knows it; 0 for a new one."""
        context = self._context
        entry = (await context.operating.wait_for(context.nodes.view)).drainers.get(context.settings.name)
        return 0 if entry is None else entry.status.max_commit_ts

    async def translator(self, place: Place) -> Translator:
        """From there on."""
        context = self._context
        at_ts = context.settings.load_schema_snapshot
        if self.first is not None:
            self.tracker = self.first.tracker
        else:
            self.tracker = await context.operating.wait_for(
                lambda: read_schema(context.upstream.history, *place, at_ts=at_ts)
            )
        translator = Translator(self.tracker, self.rules, place.commit_ts)
        metrics.LOOPBACK_TRANSACTIONS.set_function(lambda: float(translator.looped))
        return translator

    def runner(self, sink: S, translator: Translator) -> Runner[S]:
        """What drives the sink."""
        return Runner(
            sink,
            translator,
            self._context.operating.control,
            rules=RuleChange(translator, self.rules, None),
            interval_s=self._context.settings.checkpoint_interval_s,
            first=self.first,
            findings=self._context.operating.findings,
        )
