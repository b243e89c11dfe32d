"""Sink: the port to a downstream. What `runner` drives, whatever is written there.

A sink is given the upstream's binlogs in the order of their commit_ts: transactions, DDL, and watermarks that
say how far the stream is where nothing is to be written. It stores them, and says how far it is.

Promises of a sink
    position    `stored_ts` is kept durably, with the data or after it, never before: what is above it comes
                again after a crash, what is at or below it does not
    once        what comes again is recognised (by a position stored with the data, as lanes and archives do),
                or may be written twice without harm
    order       what `take` and `take_ddl` are given has its effect in that order, or so that nobody can tell;
                a DDL is a barrier: all before it is done before it takes effect, nothing after it earlier
    honesty     handed_over_ts >= resolved_ts >= stored_ts, and none of them falls
    memory      what it has taken and not yet stored is bounded: `ready` returns when it can take more
    failure     what makes going on impossible is raised, or given to `background.fail` by what works beside
                the stream. What passes by itself (a full disk, a server that restarts) is waited for

Calls come from one event loop, one at a time, in this order:

    start, (take | begin_large, take_piece... | take_large | take_ddl | watermark | flush, ready |
    between_batches)..., stop, finish, close        or, when it ends by an error: abandon

`tasks` and `save` run beside them, also beside `finish`. What has a body here has a default that suits a sink
which writes before `flush` returns and has nothing of the kind; such a sink needs `take`, `take_ddl`,
`watermark`, `flush`, `ready`, `save`, `finish`, `close` and the four timestamps. What only some sinks can do
is apart, in five classes of which all members have defaults. A sink is built by a module named in
`drainer.config.sink_options.SINKS`, and tried by `tests/contract/test_sink.py`.

Tests  tests/contract/test_sink.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidb_binlog.status.drainer import LaneStatus
from tidb_binlog.tso import Ts

if TYPE_CHECKING:  # importing `drainer.sink.mysql` runs this module: it loads nothing
    from drainer.ddl.rules import Rule
    from drainer.operate.control.hold_state import HoldPoint
    from drainer.sink.background import Background
    from drainer.stream.pull.merged import Spilled
    from drainer.txn import Ddl, LargeTransaction, Transaction
    from tidb_binlog.errors import BinlogError

FLUSH_ROWS: Final = 400


class TakesLarge(Protocol):
    """How a large transaction comes to it: in pieces, or read by the sink."""

    reads_large: bool = False
    """Large transactions are given to `take_large`, not in pieces."""

    async def begin_large(self, spilled: Spilled, pieces: AsyncIterator[Transaction]) -> None:
        """A large transaction comes next, in pieces. `pieces` are the same ones, for a sink that must see the
        whole before the first; they end early when the stream is to stop. `spilled`: as the pump sent it."""
        return

    async def take_piece(self: Sink, piece: Transaction) -> Transaction | None:
        """The next piece of a large transaction; `last` is False on all but the last one. May wait. Pieces
        end early when the stream is to stop: what is there of them must not count as stored."""
        return await self.take(piece)

    async def take_large(self, large: LargeTransaction) -> None:
        """A large transaction comes next, and is done when it returns, or the stream is to stop."""
        return


class TakesSnapshot(Protocol):
    """Rows that stood in the upstream where the stream begins."""

    async def take_snapshot(self, rows: LargeTransaction, *, is_end: bool) -> None:
        """Some of them, before anything else: they are stored when it returns. Those that came last before a
        crash come again, the same ones. `is_end`: these are the last ones, everything up to their commit_ts
        was given."""
        raise AssertionError("a sink that takes no snapshot")


class StandsStill(Protocol):
    """A database that others compare with the upstream, while it stands still."""

    can_be_held: bool = False
    """It is a database that others may compare with the upstream: `hold_point` is called."""

    @property
    def equal_from_ts(self) -> Ts:
        """Up to it there may be more than was given: of lanes that stood apart, or of another program."""
        return 0

    async def hold_point(self) -> HoldPoint:
        """Everything given is there, and nothing is written until the next call."""
        raise AssertionError("a sink that cannot be held")


class TakesRules(Protocol):
    """Rules that change while the stream runs."""

    @property
    def past_ts(self) -> Ts | None:
        """Transactions up to it may have been given in an earlier life: rules of then hold for them. None:
        none of them comes again."""
        return None

    def leave_past(self) -> None:
        """All up to `past_ts` has been given."""
        return

    @property
    def place_ts(self: Sink) -> Ts:
        """Where the stream stands: rules that are taken now are in force after it."""
        return self.handed_over_ts

    @property
    def floor_ts(self: Sink) -> Ts:
        """Nothing at or below it comes again when rules are taken now."""
        return self.place_ts

    async def store_rules(self: Sink, rules: str) -> None:
        """Everything given is done and stored when it returns; with it `rules`, where `past_ts` is used."""
        await self.flush()
        await self.save()

    def set_ddl_rules(self, rules: Sequence[Rule]) -> None:
        """Other rules of the configuration about DDL, for every one from now on."""
        return

    def waits_for(self, schema: str, table: str) -> bool:
        """Whether a table waits for a decision, so that it cannot go elsewhere."""
        return False


class Tells(Protocol):
    """What `/status` shows of it, besides its timestamps."""

    verb: str = "applying"
    """What `/status` says is being done."""

    @property
    def doing(self) -> str:
        """What keeps it busy so that an operator should know; "" if nothing does."""
        return ""

    @property
    def held_up(self) -> str:
        """What keeps it from writing, "" while nothing does; lanes say it of themselves."""
        return ""

    def lane_states(self) -> list[LaneStatus]:
        """Its parallel workers, for `/status`."""
        return []

    def facts(self) -> dict[str, Any]:
        """Its own keys of `/status`."""
        return {}


class Sink(TakesLarge, TakesSnapshot, StandsStill, TakesRules, Tells, Protocol):
    """See the module. Timestamps are commit_ts of the upstream."""

    background: Background
    """What works beside the stream reports there."""
    flush_rows: int = FLUSH_ROWS
    """`flush` is called at the latest after so many row events."""
    rebuilt_after: tuple[type[BinlogError], ...] = ()
    """After these errors it can be built anew in this process, from what is stored downstream."""

    # -- what it is given, in order ---------------------------------------------------------------

    def start(self) -> None:
        """The stream begins."""
        return

    async def take(self, transaction: Transaction) -> Transaction | None:
        """The next transaction. What of it was taken, None if it is there already: for the counters."""
        ...

    async def take_ddl(self, ddl: Ddl) -> None:
        """The next DDL, whether it is to run or not: `ddl.skip`, `ddl.refused` and rules decide. Returns when
        it has taken effect, or waits where it does not hold back the stream."""
        ...

    def watermark(self, ts: Ts) -> None:
        """Everything at or below `ts` has been given; more than so far."""
        ...

    async def flush(self) -> None:
        """What was given is on its way now, and `resolved_ts` follows without another call."""
        ...

    async def ready(self) -> None:
        """Return when more can be taken; let other tasks run."""
        ...

    async def between_batches(self) -> None:
        """Nothing is half given, everything is flushed: what a sink does at such a place."""
        return

    def try_again(self) -> None:
        """An operator says that what failed and waits is to be tried now."""
        return

    # -- what it tells -----------------------------------------------------------------------------

    @property
    def start_ts(self) -> Ts:
        """From where to pull: everything at or below it is there."""
        ...

    @property
    def stored_ts(self) -> Ts:
        """The stored checkpoint."""
        ...

    @property
    def resolved_ts(self) -> Ts:
        """Everything at or below it is downstream; the stored checkpoint follows."""
        ...

    @property
    def handed_over_ts(self) -> Ts:
        """Everything at or below it has been given."""
        ...

    # -- beside the stream, and its end ------------------------------------------------------------

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What runs beside the stream, by name; called once."""
        return {}

    async def save(self) -> None:
        """Store the checkpoint if it has moved. Called once an interval."""
        ...

    async def failed(self, error: BaseException) -> None:
        """The stream ended with `error`. Raises another error where that one says better what happened."""
        return

    def stop(self) -> None:
        """The end has begun: nothing waits any more for what may never come."""
        return

    async def finish(self, *, broken: bool) -> None:
        """Everything given is done; the time for it is limited. `broken`: the stream ended with an error."""
        ...

    async def close(self, *, finished: bool) -> bool:
        """Let go of everything. `finished`: `finish` returned. True if the downstream now has all up to the
        stored checkpoint, and nothing above it."""
        ...

    async def abandon(self, error: BaseException | None = None) -> None:
        """End because of `error`, and store nothing of the stream."""
        await self.close(finished=False)
