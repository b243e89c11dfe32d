"""Sinks of somebody, right and wrong ones, for `python:tests.drainer.config.sink_classes:...`."""

from __future__ import annotations

from typing import Any

from drainer.sink import Sink
from tidb_binlog.errors import ConfigError


class Right:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def write(self, items: Any, position: int) -> None:
        raise NotImplementedError


class Port(Sink):
    def __init__(self, context: Any) -> None:
        raise NotImplementedError


class Checks(Right):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        if "url" not in options:
            raise ConfigError("syncer.to.options.url is missing", hint="url = 'http://...'")
        int(options["shards"])


class NoWrite:
    def __init__(self, options: dict[str, Any]) -> None: ...


class WriteWithoutPosition(Right):
    def write(self, items: Any) -> None:  # type: ignore[override]
        ...


class CloseWithArgument(Right):
    def close(self, why: str) -> None: ...


class NoOptions:
    def __init__(self) -> None: ...

    def write(self, items: Any, position: int) -> None: ...


class HalfPort:
    def __init__(self, context: Any) -> None: ...

    async def take(self, transaction: Any) -> Any: ...

    async def finish(self, *, broken: bool) -> None: ...

    async def close(self, *, finished: bool) -> bool: ...


class NoRows(Right):
    batch_rows = 0


class RetriesText(Right):
    retriable = "OSError"


class RetriesNumbers(Right):
    retriable = (OSError, 3)


instance = Right({})
