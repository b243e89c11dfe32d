"""Claim store: values that are too large for a topic, in a place of files.

Out    the URI that the message has in their place
Holds  a value is whole and durable when `close` returns; a name that is written again has the same value

Tests  tests/drainer/sink/kafka/test_claim_store.py
"""

from __future__ import annotations

import contextlib
from typing import Final

from drainer.places.place import WRITE, Place
from tidb_binlog.errors import ConfigError, DownstreamError, Unavailable

KEY: Final = "syncer.to.claim-check"


class ClaimStore:
    """Raises `ConfigError` for a place that cannot be written to."""

    def __init__(self, where: str) -> None:
        self._place = Place(where).require(KEY, WRITE)
        try:
            self._place.make()
        except Unavailable as error:
            raise ConfigError(f"{KEY}: {error.message}", hint="choose a directory") from None

    def open(self, name: str) -> Claim:
        """Raises `DownstreamError`."""
        return Claim(self._place, name)


class Claim:
    """A value that is being written. Raises `DownstreamError`."""

    def __init__(self, place: Place, name: str) -> None:
        self._uri = place.uri_of(name)
        self._ends = contextlib.ExitStack()
        try:
            self._file = self._ends.enter_context(place.stream(name))
        except Unavailable as error:
            raise _failed(error.message) from None

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise _failed(f"{self._uri}: {error.strerror}") from None

    def close(self) -> str:
        """Its URI, which leads to the whole value."""
        try:
            self._ends.close()
        except Unavailable as error:
            raise _failed(error.message) from None
        return self._uri


def _failed(why: str) -> DownstreamError:
    return DownstreamError(
        f"a value cannot be stored: {why}",
        hint=f"make room or give rights at {KEY}, and start again: no message was sent for it",
    )
