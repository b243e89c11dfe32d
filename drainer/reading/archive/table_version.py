"""Table version: the definition by which the columns of one table are typed.

In     the options of a read, what the archive has
Out    the newest definition in the range; without one, what the first row of the table says
Tests  tests/drainer/reading/archive/test_typed_values.py
"""

from __future__ import annotations

from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.records import Changes
from drainer.reading.archive.files.segments import Survey
from drainer.reading.archive.read_options import ReadOptions
from drainer.txn import TableVersion
from tidb_binlog.errors import ConfigError


def version_of(options: ReadOptions, survey: Survey, definitions: Definitions) -> TableVersion:
    """The newest definition of the table in the range, or what its first row says. Raises `ConfigError`."""
    stop = options.selection.stop
    versions = [
        entry.version
        for entry in definitions
        if _same((entry.schema, entry.table), options.table) and (not stop or entry.first_ts <= stop)
    ]
    if versions:
        return versions[-1]
    selection = options.selection
    skip_damage = options.damage == reading.REPORT
    for part in survey.plan(selection, options.partition_bytes, skip_damage=skip_damage):
        for record in reading.read(survey.location, part, selection, definitions, damage=options.damage):
            if isinstance(record, Changes):
                return record.rows[0][0]
    raise ConfigError(
        f"{survey.location.shown} has no definition and no row of {'.'.join(options.table)}",
        hint="see the view definitions for the tables that it has",
    )


def _same(name_pair: tuple[str, str], other: tuple[str, str]) -> bool:
    return [name.lower() for name in name_pair] == [name.lower() for name in other]
