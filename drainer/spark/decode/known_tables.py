"""Known tables: numbers of definitions that rows can be written by, and an error for all others."""

from __future__ import annotations

from common.errors import DownstreamError
from drainer.spark.decode.definitions import Definitions
from drainer.txn import TableVersion


class KnownTables:
    """`definitions` as they are now. What was guessed from events has no keys: it is not one of them."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._checked: set[TableVersion] = set()

    def number_of(self, version: TableVersion) -> int:
        """Raises `DownstreamError` for a table without a definition."""
        if version not in self._checked:
            self._check(version)
            self._checked.add(version)
        return self._definitions.number_of(version)

    @staticmethod
    def _check(version: TableVersion) -> None:
        if not version.id:  # of a guess
            columns = ", ".join(column.name for column in version.info.columns)
            raise DownstreamError(
                f"the archive has rows of {'.'.join(version.downstream)} ({columns}) and no definition, and"
                " there is no such table with these columns downstream",
                hint="create it there as it was upstream, or leave it out with --tables",
            )
