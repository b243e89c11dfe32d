"""Opening: what is awaited gives a thing, and what is entered gives it and closes it at the end.

    publisher = await open_publisher("127.0.0.1:2379")
    async with open_publisher("127.0.0.1:2379") as publisher: ...

Tests  tests/pumpclient/test_opening.py
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar


class Closing(Protocol):
    """What can be entered."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


T = TypeVar("T", bound=Closing)
P = ParamSpec("P")


class Opening(Coroutine[Any, Any, T]):
    """Made by `open_publisher` and `connect`: await it, or enter it with `async with`."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """As of the coroutine: `asyncio.run` and `create_task` take this, too."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """As of the coroutine."""
        return self._work.throw(*error)

    def close(self) -> None:
        """As of the coroutine."""
        self._work.close()

    async def __aenter__(self) -> T:
        self._opened = await self._work
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)


def opening(make: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Opening[T]]:
    """Have it give an `Opening`."""

    @wraps(make)
    def begin(*arguments: P.args, **options: P.kwargs) -> Opening[T]:
        return Opening(make(*arguments, **options))

    return begin
