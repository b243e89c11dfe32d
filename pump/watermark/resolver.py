"""Resolver: asks the upstream what became of prewrites whose end never arrived.

Does    reads the prewrites' keys, asks about many at once, writes the ends it learns through the normal path
Why     an open prewrite holds the watermark, and with it every drainer. Where clients may be wrong about a
        rollback, theirs are asked about as they come, many in one round
Holds   one prewrite that cannot be read, or about which nothing can be learned, does not keep the others from
        being asked about; a question that hangs keeps only those that are in it, until its deadline. An end
        settles its prewrite when it is durable and filed, as every other record
Stops   abandons the questions under way; an end that is not written yet will be asked for after a restart
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from pump import metrics
from pump.index.sorter import OpenPrewrite
from pump.log.record import ValuePointer
from pump.log.writer import WriteFailed
from pump.storage.stages import Arrivals
from pump.storage.storage import Storage
from pump.watermark.resolve_schedule import Heard, ResolveSchedule, TxnAnswer
from pump.watermark.stall_report import latest_answer, next_step
from tidb_binlog import binlog
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, Rejected, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.status.pump import ResolverStatus
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Committed, Outcome, RolledBack, TransactionStatus, Undecided, Unknown

_TICK_S: Final = 0.05
_TOGETHER_S: Final = 0.005  # clients that give up within it are asked about in one round
_ROUNDS_MAX: Final = 4
_KEYS_BYTES_MAX: Final = 16 << 20  # of keys that were read; beyond it they are read again
_KEY_BYTES: Final = 200  # what one costs besides
_READS_MAX: Final = 32  # prewrites that are read before a puller has its turn
_PROBE_PAUSE_MAX_S: Final = 1.0
ANSWER_DEADLINE_S: Final = 10.0

_logger = log.get("resolver")


class Resolver:
    """Runs beside the storage of one pump."""

    def __init__(
        self,
        storage: Storage,
        transactions: TransactionStatus,
        schedule: ResolveSchedule,
        clock: Clock,
        is_awaited: Callable[[], bool],
        *,
        answer_deadline_s: float = ANSWER_DEADLINE_S,
    ) -> None:
        self._storage = storage
        self._transactions = transactions
        self._schedule = schedule
        self._clock = clock
        self._is_awaited = is_awaited
        self._answer_deadline_s = answer_deadline_s
        self.arrivals = Arrivals()
        self._keys: dict[ValuePointer, bytes] = {}
        self._keys_bytes = 0
        self._rounds = 0
        self._unavailable_since_s: float | None = None
        self._probe_s = 0.0  # while nothing is answered: when to try again
        self._probe_pause_s = _TICK_S
        self._totals = dict.fromkeys(
            ("asked", "committed", "rolled_back", "undecided", "unanswered", "unknown"), 0
        )
        self._rolled_back = asyncio.Event()  # a client has said that it rolled back
        storage.on_given_up = self._given_up

    async def run(self) -> None:
        """Ask and write; until cancelled."""
        async with asyncio.TaskGroup() as rounds:
            while True:
                await self._storage.wait_for_open_prewrites()
                due = self.due()
                if due:
                    rounds.create_task(self.ask(due), name="resolver.round")
                self._rolled_back.clear()
                # A round that is full leaves others due.
                pause_s = _TICK_S if len(due) < self._schedule.batch_max else _TOGETHER_S
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._rolled_back.wait()
                        await asyncio.sleep(_TOGETHER_S)

    def _given_up(self, start_ts: Ts) -> None:
        prewrite = self._storage.open_prewrite(start_ts)
        if prewrite is not None:
            self._schedule.given_up(prewrite)
            self._rolled_back.set()

    def heard(self, start_ts: Ts) -> Heard:
        """What the questions about an open prewrite have brought."""
        return self._schedule.heard(start_ts)

    def facts(self) -> ResolverStatus:
        """Questions and answers since the start."""
        return ResolverStatus(
            **self._totals, rounds_under_way=self._rounds, unavailable_s=round(self.unavailable_s, 3)
        )

    @property
    def unavailable_s(self) -> float:
        """For how long no question has been answered; 0 if the last ones were."""
        since_s = self._unavailable_since_s
        return 0.0 if since_s is None else self._clock.monotonic_s() - since_s

    def due(self) -> list[OpenPrewrite]:
        """The prewrites of the next round, which the caller hands to `ask`; empty if there is none now.

        While the upstream answers nothing at all, one prewrite at a time finds out whether it does again.
        """
        now_s, away = self._clock.monotonic_s(), self._unavailable_since_s is not None
        if self._storage.write_failure is not None or self._rounds >= (1 if away else _ROUNDS_MAX):
            return []
        if away and now_s < self._probe_s:
            return []
        places = self._storage.places
        self.arrivals.note(places.written, now_s)
        due = self._schedule.due(
            self._storage.open_after,
            now_s,
            is_awaited=self._is_awaited(),
            behind_s=self.arrivals.age_s(places.indexed, now_s),
            at_most=1 if away else None,
        )
        self._rounds += bool(due)
        return due

    async def ask(self, due: list[OpenPrewrite]) -> None:
        """One round: learn the keys, ask, write what was learned."""
        try:
            questions = [
                question
                for at in range(0, len(due), _READS_MAX)
                for question in await self._questions(due[at : at + _READS_MAX])
            ]
            if questions:
                self._totals["asked"] += len(questions)
                metrics.QUERIES.inc(len(questions))
                answers = await self._answers(questions)
                self._note_availability(questions, answers)
                await asyncio.gather(
                    *(
                        self._apply(start_ts, answer)
                        for (start_ts, _), answer in zip(questions, answers, strict=True)
                    )
                )
        finally:
            self._rounds -= 1

    async def _questions(self, due: Sequence[OpenPrewrite]) -> list[tuple[int, bytes]]:
        """(start_ts, key) of those whose key can be read; in one turn on a thread, one after the other: a
        prewrite may be large."""
        places = [prewrite.place for prewrite in due]
        keys: list[bytes | Exception | None] = [self._keys.get(place) for place in places]
        if None in keys:
            keys = await self._storage.in_thread(self._read_keys, places, keys)
        questions = []
        for prewrite, key in zip(due, keys, strict=True):
            start_ts = prewrite.start_ts
            if isinstance(key, bytes):
                questions.append((start_ts, key))
                self._keep_key(prewrite.place, key)
                continue
            if self._schedule.heard(start_ts).answer is not TxnAnswer.DAMAGED:
                _logger.error("open prewrite cannot be read", start_ts=start_ts, error=key)
            metrics.STORAGE_ERRORS.labels("read_value").inc()
            self._undecided(start_ts, TxnAnswer.DAMAGED, str(key))
        return questions

    def _keep_key(self, place: ValuePointer, key: bytes) -> None:
        if place not in self._keys:
            self._keys_bytes += len(key) + _KEY_BYTES
            if self._keys_bytes > _KEYS_BYTES_MAX:
                self._keys.clear()
                self._keys_bytes = len(key) + _KEY_BYTES
            self._keys[place] = key

    def _read_keys(
        self, places: Sequence[ValuePointer], keys: Sequence[bytes | Exception | None]
    ) -> list[bytes | Exception | None]:
        return [
            self._read_key(place) if key is None else key for place, key in zip(places, keys, strict=True)
        ]

    def _read_key(self, place: ValuePointer) -> bytes | Exception:
        try:
            return binlog.parse(self._storage.value_log.read(place)).prewrite_key
        except (BinlogError, OSError) as error:
            return error

    async def _answers(self, questions: Sequence[tuple[int, bytes]]) -> list[Outcome | BinlogError]:
        """An answer, or why there is none, for each question: a group that fails is asked in halves, unless
        there is no answer at all."""
        error: BinlogError
        try:
            async with asyncio.timeout(self._answer_deadline_s):
                said = [start_ts for start_ts, _ in questions if self._schedule.says_so(start_ts)]
                return [*await self._transactions.outcomes(list(questions), said)]
        except TimeoutError:
            error = Unavailable(f"no answer within {self._answer_deadline_s:g} s")
        except Unavailable as caught:
            return [caught] * len(questions)
        except BinlogError as caught:
            error = caught
        if len(questions) == 1:
            return [error]
        middle = len(questions) // 2
        first, second = await asyncio.gather(
            self._answers(questions[:middle]), self._answers(questions[middle:])
        )
        return first + second

    def _note_availability(
        self, questions: Sequence[tuple[int, bytes]], answers: Sequence[Outcome | BinlogError]
    ) -> None:
        now_s = self._clock.monotonic_s()
        error = answers[0]
        if all(isinstance(answer, BinlogError) for answer in answers):
            if self._unavailable_since_s is None:
                self._unavailable_since_s = now_s
                _logger.warning(
                    "upstream does not answer about open prewrites, they hold the watermark",
                    open=self._storage.open_count,
                    oldest_start_ts=questions[0][0],
                    error=error,
                )
            self._probe_pause_s = min(self._probe_pause_s * 2, _PROBE_PAUSE_MAX_S)
            self._probe_s = now_s + self._probe_pause_s
        elif self._unavailable_since_s is not None:
            _logger.info(
                "upstream answers about open prewrites again",
                seconds=round(now_s - self._unavailable_since_s, 3),
            )
            self._unavailable_since_s = None
            self._probe_pause_s = _TICK_S

    async def _apply(self, start_ts: Ts, answer: Outcome | BinlogError) -> None:
        if not self._storage.is_open(start_ts):
            self._schedule.drop(start_ts)
            return
        if isinstance(answer, Committed) and answer.commit_ts > start_ts:
            payload = binlog.commit(start_ts, answer.commit_ts)
            header = binlog.Header(binlog.COMMIT, start_ts, answer.commit_ts)
            await self._write(payload, header, "committed")
        elif isinstance(answer, RolledBack):
            header = binlog.Header(binlog.SETTLED_ROLLBACK, start_ts, 0)
            await self._write(binlog.settled_rollback(start_ts), header, "rolled_back")
        elif isinstance(answer, Undecided) and answer.unanswered:
            self._undecided(start_ts, TxnAnswer.UNAVAILABLE, answer.unanswered, answer.retry_after_s)
        elif isinstance(answer, Undecided):
            detail = f"asked again in {answer.retry_after_s:g} s"
            self._undecided(start_ts, TxnAnswer.ALIVE, detail, answer.retry_after_s, answer.hint)
        elif isinstance(answer, Unknown):
            if self._schedule.heard(start_ts).answer is not TxnAnswer.UNKNOWN:
                hint = next_step(start_ts, Heard(answer=TxnAnswer.UNKNOWN))
                _logger.error(
                    "the end of a transaction is unknown upstream, and drainers wait for it",
                    start_ts=start_ts,
                    reason=answer.reason,
                    next=hint,
                )
            self._undecided(start_ts, TxnAnswer.UNKNOWN, answer.reason, answer.retry_after_s)
        elif isinstance(answer, BinlogError):
            self._undecided(start_ts, TxnAnswer.UNAVAILABLE, str(answer))
        else:
            _logger.error("upstream answers with a commit_ts not above the start_ts", start_ts=start_ts)
            self._undecided(start_ts, TxnAnswer.ODD, f"commit_ts {answer.commit_ts}")

    def _undecided(
        self,
        start_ts: Ts,
        answer: TxnAnswer,
        detail: str,
        retry_after_s: float | None = None,
        hint: str = "",
    ) -> None:
        outcome = {TxnAnswer.ALIVE: "undecided", TxnAnswer.UNKNOWN: "unknown"}.get(answer, "unanswered")
        self._totals[outcome] += 1
        metrics.RESOLVED.labels(outcome).inc()
        now_s = self._clock.monotonic_s()
        self._schedule.undecided(start_ts, now_s, answer, detail, retry_after_s=retry_after_s, hint=hint)

    async def decide(self, start_ts: Ts, commit_ts: Ts) -> None:
        """An operator decides a transaction that the upstream does not know any more: committed at
        `commit_ts`, or (0) rolled back. Raises `Rejected` where that cannot be, `WriteFailed`."""
        if not self._storage.is_open(start_ts):
            raise Rejected(f"transaction {start_ts} is not open here", hint="see `oldest` in /status")
        if self._schedule.heard(start_ts).answer is not TxnAnswer.UNKNOWN:
            raise Rejected(
                f"transaction {start_ts} is not left to you: {latest_answer(self._schedule.heard(start_ts))}",
                hint="only what the upstream does not know any more is",
            )
        header = binlog.Header(binlog.SETTLED_ROLLBACK, start_ts, 0)
        payload = binlog.settled_rollback(start_ts)
        if commit_ts:
            floor_ts = max(start_ts, self._storage.watermark)
            if commit_ts <= floor_ts or await self._storage.find(commit_ts) is not None:
                raise Rejected(
                    f"{commit_ts} cannot be its commit_ts",
                    hint=f"give one above {floor_ts} at which nothing else was committed",
                )
            header = binlog.Header(binlog.COMMIT, start_ts, commit_ts)
            payload = binlog.commit(start_ts, commit_ts)
        _logger.warning("an operator decides a transaction", start_ts=start_ts, commit_ts=commit_ts)
        await self._storage.write(payload, header)
        self._schedule.ended(start_ts, self._clock.monotonic_s(), "decided by an operator")

    async def _write(self, payload: bytes, header: binlog.Header, outcome: str) -> None:
        start_ts, commit_ts = header.start_ts, header.commit_ts
        try:
            await self._storage.write(payload, header)
        except WriteFailed as error:
            _logger.warning("end of an open prewrite not written", start_ts=start_ts, error=error)
            self._undecided(start_ts, TxnAnswer.NOT_WRITTEN, str(error))
            return
        self._schedule.ended(start_ts, self._clock.monotonic_s(), outcome)
        self._totals[outcome] += 1
        metrics.RESOLVED.labels(outcome).inc()
        _logger.info(
            "known txn is committed or rollback from upstream",
            start_ts=start_ts,
            commit_ts=commit_ts,
            outcome=outcome,
        )
