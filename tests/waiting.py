"""Waiting: the one place where tests look again until something is so.

For what threads, processes and peers do. What offers an event is awaited by it; what seconds move runs in
`tests.fakes.virtual_time`. A wait that is in vain says what did not come.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class Process(Protocol):
    """Of `subprocess`, or of `tests.forked`."""

    def poll(self) -> int | None: ...


PATIENCE_S: Final = 240.0
"""A limit against hanging and nothing else: what is waited for takes a tenth of it on a busy machine."""
_LOOK_S: Final = 0.002
_LATE_LOOK_S: Final = 0.02
_PAUSE_MAX_S: Final = 0.5
_TURNS: Final = 200


async def until(
    condition: Callable[[], Any],
    what: object = "",
    *,
    seconds: float = PATIENCE_S,
    beside: Iterable[asyncio.Future[Any]] = (),
) -> Any:
    """What the condition gives, itself or as something to wait for, once that is true.

    `what` is said if it never is: a text, or the function whose own text tells. Raises what a task `beside`
    ended with.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for turn in itertools.count():
        asked_s = loop.time()
        value = condition()
        if is_slow := inspect.isawaitable(value):
            value = await value
        if value:
            return value
        for task in beside:
            if task.done():
                task.result()
        now_s = loop.time()
        assert now_s - began_s < seconds, _missing(condition, what)
        pause_s = _pause_s(began_s, asked_s, now_s)
        # What only the loop does comes within turns of it, in which no time passes.
        at_once = turn < _TURNS and not is_slow and pause_s <= _LOOK_S
        await asyncio.sleep(0 if at_once else pause_s)
    raise AssertionError


def until_here(condition: Callable[[], T], what: object = "", *, seconds: float = PATIENCE_S) -> T:
    """As `until`, on a thread without a loop."""
    began_s = asked_s = time.monotonic()
    while not (value := condition()):
        now_s = time.monotonic()
        assert now_s - began_s < seconds, _missing(condition, what)
        time.sleep(_pause_s(began_s, asked_s, now_s))
        asked_s = time.monotonic()
    return value


def _pause_s(began_s: float, asked_s: float, now_s: float) -> float:
    """Until the next look. Who is asked has three quarters of the time for what it does; who has waited for
    long waits a fiftieth longer, rather than look hundreds of times."""
    return max(_LOOK_S, min(3 * (now_s - asked_s), _PAUSE_MAX_S), min((now_s - began_s) / 50, _LATE_LOOK_S))


def until_served(
    url: str,
    process: Process,
    said: Callable[[], str] = str,
    *,
    context: ssl.SSLContext | None = None,
) -> None:
    """Until a process that was started serves it well. `said`: what it wrote."""

    def is_served() -> bool:
        assert (code := process.poll()) is None, f"ended with {code}: {said()}"
        try:
            with urllib.request.urlopen(url, context=context, timeout=5):
                return True
        except OSError:
            return False

    until_here(is_served, url)


async def settle(turns: int = 50) -> None:
    """Let everything happen that can happen now, and see what did not."""
    for _ in range(turns):
        await asyncio.sleep(0)


def _missing(condition: Callable[..., object], what: object) -> str:
    if isinstance(what, str) and what:
        return f"did not come: {what}"
    try:
        return f"did not come: {inspect.getsource(what or condition).strip()}"  # type: ignore[arg-type]
    except (OSError, TypeError):
        return f"did not come: {what or condition}"
