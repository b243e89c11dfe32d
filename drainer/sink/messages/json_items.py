"""JSON items: what the sinks of the Drainer that write JSON are given, made of what the translator gives.

Out    of each its messages, one a row: canal-json with TiCDC's `_tidb`. Those of a large transaction are made
       while they are iterated, each time from the first one on
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from drainer.ddl.derive.render import NotDerivable
from drainer.ddl.derive.values import Route
from drainer.formats.messages.message import CANAL_JSON, Message, MessageFormat, open_format
from drainer.sink.batch.batching import Item
from drainer.sink.ddl_text import ddl_texts
from drainer.txn import Ddl, Transaction
from tidb_binlog.errors import DownstreamError
from tidb_binlog.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LargeMessages:
    """Of one large transaction."""

    pieces: Callable[[], Iterator[Transaction]]
    form: MessageFormat

    def __iter__(self) -> Iterator[Message]:
        for piece in self.pieces():
            yield from self.form.rows(piece)


class JsonItems:
    """`route` says where a table goes; to be set before the first item. Not for several threads at once."""

    route: Route

    def __init__(self) -> None:
        self._form = open_format(CANAL_JSON)

    def __call__(self, items: Sequence[Item]) -> list[Iterable[Message]]:
        """Raises `RowError`, `DownstreamError`."""
        return [self._messages(item) for item in items]

    def _messages(self, item: Item) -> Iterable[Message]:
        if isinstance(item, Transaction):
            return list(self._form.rows(item))
        if isinstance(item, Ddl):
            message = self._form.ddl(item, self._text(item))
            return [] if message is None else [message]
        return LargeMessages(item.pieces, self._form)

    def _text(self, ddl: Ddl) -> str:
        try:
            return " ".join(ddl_texts(ddl, None, self.route))
        except NotDerivable as error:
            raise DownstreamError(
                f"DDL job {ddl.job_id} at commit_ts {ddl.commit_ts} stops the drainer: {error};"
                f" {ddl.statement}",
                hint="write a rule for it (syncer.ddl-rule) and start again",
            ) from None
