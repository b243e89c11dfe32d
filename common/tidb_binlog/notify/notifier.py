"""Notifier: posts events to the operator's URL.

Holds   the node never waits for it: what cannot be posted waits in a bounded queue and is tried again. At the
        end it has `END_S` in all
Never   shows more of the URL than scheme, host and port; follows a redirect, uses a proxy of the environment

    2xx                                     taken
    408, 425, 429, 5xx, no answer           tried again with the same id and body
    anything else                           logged and dropped: trying again would not help
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.net import webhook
from tidb_binlog.net.http_client import HttpClient, SystemAuthorities
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.notify.events import Condition, Event, Events, Origin, Type
from tidb_binlog.observe import log, metrics
from tidb_binlog.observe.printable import one_line

SIZE_MAX: Final = 256
PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0


class Outbox:
    """Times are monotonic seconds."""

    def __init__(self, size_max: int = SIZE_MAX, backoff: Backoff | None = None) -> None:
        self._size_max = size_max
        self._backoff = backoff or Backoff(PAUSE_FIRST_S, PAUSE_MAX_S)
        self._waiting: deque[Event] = deque()
        self._due_s = 0.0
        self.sent = 0
        self.refused = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: Event) -> Event | None:
        """The event that had to go for it."""
        self._waiting.append(event)
        if len(self._waiting) <= self._size_max:
            return None
        self.dropped += 1
        return self._waiting.popleft()

    @property
    def first(self) -> Event | None:
        """The next one, whether it is due or not."""
        return self._waiting[0] if self._waiting else None

    def wait_s(self, now_s: float) -> float | None:
        """How long until the first event is due; None if there is none."""
        return max(self._due_s - now_s, 0.0) if self._waiting else None

    def taken(self, event: Event) -> None:
        """It was posted."""
        self.sent += 1
        self._done(event)

    def refuse(self, event: Event) -> None:
        """It will never be taken."""
        self.refused += 1
        self._done(event)

    def retry(self, now_s: float) -> float:
        """It may be taken later; in how many seconds it is tried again."""
        pause_s = self._backoff.next_s()
        self._due_s = now_s + pause_s
        return pause_s

    def _done(self, event: Event) -> None:
        self._backoff.reset()
        self._due_s = 0.0
        if self._waiting and self._waiting[0] is event:  # it may have been dropped meanwhile
            self._waiting.popleft()


LOOK_S: Final = 2.0
POST_S: Final = 10.0
END_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 64 << 10
_SHOWN_CHARACTERS: Final = 200
_logger = log.get("notify")

POSTS: Final = metrics.counter(
    "binlog_common_notify_events_total",
    "Events for notify-url: sent, refused by the receiver, or dropped: too many waited, or the node ended.",
    ["result"],
)
for _result in ("sent", "refused", "dropped"):  # a series that begins with its first loss is no increase
    POSTS.labels(_result)
WAITING: Final = metrics.gauge("binlog_common_notify_waiting_count", "Events that wait to be posted.")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`target` is path and query. `user`: "name:password" of the URL, or ""."""

    scheme: str
    address: str
    target: str = field(repr=False)
    user: str = field(default="", repr=False)
    secret: bytes = field(default=b"", repr=False)
    tls: TlsConfig | None = None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}"


class Notifier:
    """Of one process. `look` gives the conditions that hold; None while they are not known."""

    def __init__(self, endpoint: Endpoint, kind: str, node_id: str, clock: Clock) -> None:
        self.look: Callable[[], Iterable[Condition] | None] = lambda: None
        self._endpoint = endpoint
        self._clock = clock
        self._events = Events(Origin(kind, node_id, secrets.token_hex(6)))
        self._outbox = Outbox()
        self._wake = asyncio.Event()
        self._failing = False
        tls = (endpoint.tls or SystemAuthorities()) if endpoint.scheme == "https" else None
        self._client = HttpClient(clock, tls, POST_S, ANSWER_BYTES_MAX)
        WAITING.set_function(lambda: float(len(self._outbox)))

    def known_as(self, node_id: str) -> None:
        """The node's name, once it is known."""
        self._events.origin = Origin(self._events.origin.kind, node_id, self._events.origin.run)

    def happened(self, condition: Condition) -> None:
        """Tell of something that does not last."""
        self._put(self._events.happened(condition, self._clock.wall_s()))

    def note(self) -> None:
        """Look once at what holds."""
        conditions = self.look()
        if conditions is not None:
            for event in self._events.look(conditions, self._clock.wall_s()):
                self._put(event)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name="notify.watch")
            tasks.create_task(self._post_all(), name="notify.post")

    async def finish(self, code: int, cause: BaseException | None) -> None:
        """Tell that the process ends, and what still waits: within `END_S`."""
        reason = "stopped on request" if cause is None else one_line(str(cause))
        details = {"exit_code": code, "reason": reason}
        self.happened(
            Condition(
                Type.ENDED, self._events.origin.node_id, f"ended with exit code {code}: {reason}", "", details
            )
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                while (event := self._outbox.first) is not None and await self._post(event):
                    pass
        if left := len(self._outbox):
            POSTS.labels("dropped").inc(left)
            _logger.warning("events were not delivered before the end", url=str(self._endpoint), count=left)

    async def _watch(self) -> None:
        while True:
            try:
                self.note()
            except Exception as error:  # the node goes on, whatever a status has in it
                _logger.failure("what holds could not be looked at", error)
            await asyncio.sleep(LOOK_S)

    async def _post_all(self) -> None:
        while True:
            self._wake.clear()
            wait_s = self._outbox.wait_s(self._clock.monotonic_s())
            if wait_s != 0.0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                continue
            event = self._outbox.first
            assert event is not None
            try:
                await self._post(event)
            except Exception as error:  # the node goes on, whatever a receiver says
                _logger.failure("an event could not be posted, it is dropped", error)
                self._outbox.refuse(event)

    def _put(self, event: Event) -> None:
        lost = self._outbox.put(event)
        if lost is not None:
            POSTS.labels("dropped").inc()
            _logger.warning(
                "an event was dropped: too many wait",
                url=str(self._endpoint),
                type=lost.condition.type,
                subject=lost.condition.subject,
            )
        self._wake.set()

    async def _post(self, event: Event) -> bool:
        """Whether it is done with: taken, or refused for good."""
        end, body = self._endpoint, event.body()
        headers = webhook.headers(event.key, self._clock.wall_s(), body, end.secret)
        if end.user:
            headers["Authorization"] = f"Basic {base64.b64encode(end.user.encode()).decode()}"
        try:
            page = await self._client.ask("POST", end.address, end.target, body, headers)
        except (Unavailable, ConfigError) as error:
            return self._later(str(error))
        if 200 <= page.status < 300:
            self._outbox.taken(event)
            POSTS.labels("sent").inc()
            if self._failing:
                _logger.info("events are delivered again", url=str(end))
            self._failing = False
            return True
        said = f"{page.status} {one_line(page.body.decode('utf-8', 'replace'))[:_SHOWN_CHARACTERS]}".strip()
        if webhook.is_worth_a_retry(page.status):
            return self._later(said)
        self._outbox.refuse(event)
        POSTS.labels("refused").inc()
        _logger.error(
            "an event was refused, it is not sent again",
            url=str(end),
            type=event.condition.type,
            subject=event.condition.subject,
            answer=said,
        )
        return True

    def _later(self, why: str) -> bool:
        pause_s = self._outbox.retry(self._clock.monotonic_s())
        if not self._failing:
            _logger.warning(
                "an event cannot be delivered, it is tried again",
                url=str(self._endpoint),
                reason=why,
                pause_s=round(pause_s, 1),
            )
        self._failing = True
        return False
