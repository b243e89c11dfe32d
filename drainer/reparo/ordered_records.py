"""Ordered records: the records of a file archive in order of commit_ts, each once.

Out    rows as they stand there and schema changes, each with its slice; how far it is
Holds  what a Drainer that was started again wrote a second time, in the same file or the next one, is left
       out. Anything else that is out of order is damage
Tests  tests/drainer/reparo/test_archive_source.py
"""

from __future__ import annotations

from collections.abc import Iterator

from drainer.places.place import Place
from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.records import Piece, SchemaChange
from drainer.reading.archive.files.segments import PUMP, Slice, Survey, survey
from drainer.reading.archive.files.selection import Selection
from drainer.reparo.options import ReparoConfig
from tidb_binlog.errors import BinlogError, ConfigError, Corruption
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts


@dataclass(slots=True)
class Seen:
    """What was read so far. `bytes` of `bytes_all`."""

    first_ts: Ts = 0
    last_ts: Ts = 0
    ddl: int = 0
    bytes: int = 0
    bytes_all: int = 0


def ordered(survey: Survey, selection: Selection, seen: Seen) -> Iterator[tuple[Piece | SchemaChange, Slice]]:
    """Raises `Corruption`."""
    slices = survey.plan(selection)
    seen.bytes_all = sum(_size(part) for part in slices)
    read = 0
    for number, part in enumerate(slices):
        repeated = _Repeated(survey, slices[:number])
        for item in reading.undecoded(survey.location, part, replace(selection, stop=0)):
            commit_ts = item.ddl.commit_ts if isinstance(item, SchemaChange) else item.commit_ts
            if selection.stop and commit_ts > selection.stop:
                return
            if commit_ts <= seen.last_ts and not (isinstance(item, SchemaChange) and item.part):
                if commit_ts in repeated:
                    continue
                problem = Corruption(
                    f"commit_ts {commit_ts} comes after {seen.last_ts}, and was not there before",
                    hint="its transactions are not in order: is the directory that of one Drainer?",
                )
                raise at_place(problem, survey, part, item.pos)
            seen.first_ts = seen.first_ts or commit_ts
            seen.last_ts = commit_ts
            seen.bytes = read + max(item.pos - part.start, 0)
            yield item, part
        read += _size(part)
        seen.bytes = read


def at_place(error: BinlogError, survey: Survey, part: Slice, pos: int) -> BinlogError:
    """The error with the place of the record."""
    return type(error)(
        f"{survey.location.path_of(part.name)}: offset {pos}: {error.message}", hint=error.hint
    )


def _size(part: Slice) -> int:
    return (part.stop or part.size) - part.start


class _Repeated:
    """What the files before have, read again where a Drainer wrote on in a new one from its checkpoint."""

    def __init__(self, survey: Survey, before: list[Slice]) -> None:
        self._survey = survey
        self._before = before
        self._known: set[int] | None = None

    def __contains__(self, commit_ts: Ts) -> bool:
        if self._known is None:
            location = self._survey.location
            self._known = {head.commit_ts for part in self._before for head in reading.heads(location, part)}
        return commit_ts in self._known


def surveyed(config: ReparoConfig) -> Survey:
    """Blocks. Raises `ConfigError` for a directory without an archive."""
    archive = survey(Place.of(config.data_dir, {}), config.kind, config.archive_zone)
    if archive.kind == PUMP:
        raise ConfigError(
            f"{config.data_dir} has value logs of a Pump, which are not in order of commit_ts",
            hint="read them with `binlog-spark replay`, or let a Drainer pull them",
        )
    if not archive.segments:
        raise ConfigError(
            f"{config.data_dir} has no binlog files",
            hint="data-dir is the directory that a Drainer of db-type = file writes to",
        )
    return archive
