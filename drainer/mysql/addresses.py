"""Addresses: which of several servers is the downstream now.

In     addresses in the operator's order, how a session is opened at one, the time
Out    a session at the server in use
Holds  all sessions of the process are at one server. Another one comes into use when the one in use could not
       be reached for `AFTER_S` (at first: at once), and whatever was open there is cut before a session at
       the new one is given out. A server that is read-only is not taken: it is a replica still
Why    a server that comes back within seconds has lost nothing; a replica may lack what came last
Never  decides whether the new server may be written: each session is checked by the epoch and the positions
       that it finds there, as after any other reconnect (`drainer.checkpoint.fencing`)
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError, DownstreamError, Unavailable
from tidb_binlog.observe import log

AFTER_S: Final = 10.0
_logger = log.get("downstream")

Place = tuple[str, int]


class Session(Protocol):
    """A connection. From any thread."""

    def is_read_only(self) -> bool: ...

    def cut(self) -> None:
        """Whatever it waits for ends, and nothing more goes over it."""
        ...

    def close(self) -> None: ...


S = TypeVar("S", bound=Session)


class Addresses:
    """Safe to use from several threads. `places` are two or more."""

    def __init__(
        self, places: Sequence[Place], *, clock: Clock | None = None, after_s: float = AFTER_S
    ) -> None:
        assert len(places) > 1
        self._places = tuple(places)
        self._clock = clock or SystemClock()
        self._after_s = after_s
        self._number = 0  # of the moves so far
        self._index = 0
        self._used = False
        self._away_since_s: float | None = None
        self._open: weakref.WeakSet[Session] = weakref.WeakSet()
        self._lock = threading.Lock()  # of the fields; never held while a server is asked
        self._moving = threading.Lock()

    @property
    def place(self) -> Place:
        """The address in use; the first one before any was."""
        return self._places[self._index]

    def session(self, opened: Callable[[Place], S]) -> S:
        """Blocks. Raises what `opened` raises for the server in use, if no other one may be taken."""
        with self._lock:
            number, place = self._number, self.place
        try:
            session = self._writable(place, opened)
        except Unavailable as error:
            if not self._is_due(number):
                raise
            return self._moved(number, opened, error.message)
        return self._given(number, session)

    def _writable(self, place: Place, opened: Callable[[Place], S]) -> S:
        """Raises `Unavailable`, also for a replica."""
        session = opened(place)
        read_only = True
        try:
            read_only = session.is_read_only()
        finally:
            if read_only:
                session.close()
        if read_only:
            host, port = place
            raise Unavailable(
                f"downstream {host}:{port} is read-only: a replica that was not promoted",
                hint="promote it, or start the server that it follows",
            )
        return session

    def _is_due(self, number: int) -> bool:
        """Whether another one is to be tried now."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if number != self._number:
                return False
            if self._away_since_s is None:
                self._away_since_s = now_s
            return not self._used or now_s - self._away_since_s >= self._after_s

    def _given(self, number: int, session: S) -> S:
        with self._lock:
            if number == self._number:
                self._used, self._away_since_s = True, None
                self._open.add(session)
                return session
        session.close()
        raise Unavailable("the downstream is another server by now", hint="connect again")

    def _moved(self, number: int, opened: Callable[[Place], S], why: str) -> S:
        """One thread at a time looks for another server; those that come later find it in use. `why`: what is
        the matter with the one in use."""
        with self._moving:
            with self._lock:
                if number != self._number:
                    raise Unavailable("the downstream is another server by now", hint="connect again")
                before = self._index
            failures = [why]
            for step in range(1, len(self._places)):
                index = (before + step) % len(self._places)
                try:
                    session = self._writable(self._places[index], opened)
                except (Unavailable, DownstreamError) as error:
                    failures.append(error.message)
                    continue
                self._take(index)
                return self._given(number + 1, session)
        raise Unavailable(
            f"no downstream of [syncer.to] host can be used: {'; '.join(failures)}",
            hint="is one of them running, and no replica? check host and port",
        )

    def _take(self, index: int) -> None:
        with self._lock:
            first, before = not self._used, self.place
            left = list(self._open)
            self._open.clear()
            self._number += 1
            self._index = index
        for session in left:
            with contextlib.suppress(BinlogError, OSError):
                session.cut()
        host, port = self.place
        if first:
            _logger.warning("the downstream is not the first address", downstream=f"{host}:{port}")
        else:
            _logger.error(
                "the downstream is another server from now on",
                before=f"{before[0]}:{before[1]}",
                downstream=f"{host}:{port}",
            )
