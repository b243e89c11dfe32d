"""Routing: which topic and which partition a message goes to.

Out    a legal topic name, a partition
Holds  two tables that a template keeps apart never share a topic: the second one is refused by name.
       The partition of a key is librdkafka's `consistent` one: CRC-32 of the key, modulo their number.
       What has no key goes where its table goes, so that its changes keep their order
"""

from __future__ import annotations

import re
import zlib
from typing import Final

from tidb_binlog.errors import DownstreamError
from tidb_binlog.tso import Ts

NAME_MAX: Final = 249
FIRST: Final = ""
KEY: Final = "key"
TABLE: Final = "table"
TS: Final = "ts"

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9._-]")
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_KNOWN: Final = ("schema", "table")


class Topics:
    """Topics of one template; `template` has been checked. Without places there is one topic for all."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._places = tuple(name for name in _KNOWN if f"{{{name}}}" in template)
        self._owners: dict[str, tuple[str, ...]] = {}
        self._known: dict[tuple[str, str], str] = {}

    @property
    def only(self) -> str | None:
        """The one topic, where the template has no places."""
        return None if self._places else self._template

    def of(self, schema: str, table: str) -> str:
        """Raises `DownstreamError` where another table has the topic."""
        name = self._known.get((schema, table))
        if name is None:
            name = self._known[schema, table] = self._named(schema, table)
        return name

    def _named(self, schema: str, table: str) -> str:
        values = {"schema": schema, "table": table}
        name = _PLACE.sub(lambda place: values[place[1]], self._template)
        name = _ILLEGAL.sub("_", name)[:NAME_MAX]
        if name in ("", ".", ".."):
            name = "_" * max(1, len(name))
        owner = tuple(values[place] for place in self._places)
        other = self._owners.setdefault(name, owner)
        if other != owner:
            first, second = (".".join(f"`{part}`" for part in names) for names in (other, owner))
            raise DownstreamError(
                f"{first} and {second} would both go to topic {name}",
                hint="choose another syncer.to.topic, or give one of them another name by a route"
                " (table-migrate-rule)",
            )
        return name


def partition_of(by: str, count: int, schema: str, table: str, key: bytes | None, commit_ts: Ts) -> int:
    """`count` partitions there are."""
    if count == 1 or by == FIRST:
        return 0
    if by == KEY and key is not None:
        return zlib.crc32(key) % count
    if by == TS:
        return zlib.crc32(b"%d" % commit_ts) % count
    return zlib.crc32(f"{schema}\0{table}".encode()) % count
