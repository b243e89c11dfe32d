"""Archive tables: definitions of the tables whose rows a segment has, which its records do not carry.

    <archive>/index/<name of the segment>.tables.jsonl

In     table versions as they come with the first row of a segment
Out    lines of JSON: the commit_ts of that row, the archived name, all that a `TableVersion` is
Why    an event names its columns and their types, but neither keys nor what is unsigned, nullable or an
       element of an ENUM: with the definition at hand rows can be folded, compared and written again
Holds  a definition is on the medium before the records that need it. A line that is torn, or there twice
       because the writer started again, says nothing new. Programs that do not know the file do without

Tests  tests/drainer/sink/file/test_archive.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from common.errors import Corruption
from common.foreign_document import UNREADABLE
from drainer.formats.obinlog import reader as obinlog_read
from drainer.formats.obinlog.writer import definition_json
from drainer.txn import TableVersion


class ArchivedTable(NamedTuple):
    """`version` as it was when the row of `first_ts` was written, archived as `schema`.`table`."""

    first_ts: int
    schema: str
    table: str
    version: TableVersion


def file_name(segment: str) -> str:
    """Of the definitions of a segment, in `segment_index.DIRECTORY`."""
    return f"{segment}.tables.jsonl"


def line(first_ts: int, version: TableVersion) -> bytes:
    """One definition, with its line end."""
    schema, table = version.downstream
    document = {"first_commit_ts": first_ts, "schema": schema, "table": table}
    return json.dumps(document)[:-1].encode() + b', "definition": ' + definition_json(version) + b"}\n"


def read(text: bytes) -> Iterator[ArchivedTable]:
    """The definitions in a file's text, oldest first, each once."""
    known: set[bytes] = set()
    for one in text.splitlines():
        try:
            document = json.loads(one)
            definition = json.dumps(document["definition"]).encode()
            if definition in known:
                continue
            version = obinlog_read.definition(definition)
            found = ArchivedTable(
                int(document["first_commit_ts"]), str(document["schema"]), str(document["table"]), version
            )
        except (*UNREADABLE, Corruption):
            continue
        known.add(definition)
        yield found
