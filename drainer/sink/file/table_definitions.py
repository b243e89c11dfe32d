"""Table definitions: definitions of the tables whose rows a segment has, which its records do not carry.

    <archive>/index/<name of the segment>.tables.jsonl

Out    lines of JSON: the checksum and size of what follows, the commit_ts of that row, the archived name, all
       that a `TableVersion` is
Why    an event names its columns and their types, but neither keys nor what is unsigned, nullable or an
       element of an ENUM: with the definition at hand rows can be folded, compared and written again
Holds  a definition is on the medium before the records that need it. A line that is torn, or there twice
       because the writer started again, says nothing new; one that does not fit its checksum is damage.
       Older releases wrote none, and pass over it. Programs that do not know the file do without

Tests  tests/drainer/sink/file/test_archive.py
"""

from __future__ import annotations

import enum
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from drainer.formats.obinlog import reader as obinlog_read
from drainer.formats.obinlog.writer import definition_json
from drainer.txn import TableVersion
from tidb_binlog.errors import Corruption
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.record import crc32c
from tidb_binlog.tso import Ts

_HEAD: Final = re.compile(rb'\{"check": "([0-9a-f]{8})([0-9a-f]{8})", ')


class _State(enum.Enum):
    WHOLE = enum.auto()
    TORN = enum.auto()
    DAMAGED = enum.auto()


class ArchivedTable(NamedTuple):
    """`version` as it was when the row of `first_ts` was written, archived as `schema`.`table`."""

    first_ts: Ts
    schema: str
    table: str
    version: TableVersion


def file_name(segment: str) -> str:
    """Of the definitions of a segment, in `segment_index.DIRECTORY`."""
    return f"{segment}.tables.jsonl"


def line(first_ts: Ts, version: TableVersion) -> bytes:
    """One definition, with its line end."""
    schema, table = version.downstream
    document = {"first_commit_ts": first_ts, "schema": schema, "table": table}
    body = json.dumps(document)[1:-1].encode() + b', "definition": ' + definition_json(version) + b"}"
    return b'{"check": "%08x%08x", %b\n' % (crc32c(body), len(body), body)


def read(text: bytes) -> Iterator[ArchivedTable]:
    """The definitions in a file's text, oldest first, each once; without those that are damaged."""
    definitions: set[bytes] = set()
    for text_line in text.splitlines():
        archived = _parsed(text_line) if _state(text_line) is _State.WHOLE else None
        if archived is not None and (definition := definition_json(archived.version)) not in definitions:
            definitions.add(definition)
            yield archived


def without_torn(text: bytes) -> tuple[bytes, int]:
    """A file's text without lines that are torn; how many of its definitions are whole."""
    states = [(text_line, _state(text_line)) for text_line in text.splitlines()]
    kept = b"".join(text_line + b"\n" for text_line, state in states if state is not _State.TORN)
    return kept, sum(state is _State.WHOLE for _, state in states)


def damage(text: bytes, least: int) -> str:
    """What is wrong with a file's text, "" if nothing is. `least`: so many definitions were in it."""
    states = Counter(map(_state, text.splitlines()))
    if states[_State.DAMAGED]:
        return "is damaged: a definition does not fit its checksum"
    if states[_State.WHOLE] < least:
        return f"has {states[_State.WHOLE]} of {least} definitions"
    return ""


def _state(text_line: bytes) -> _State:
    if b"\0" in text_line:  # a power cut left a hole, in which line ends may be, too
        return _State.TORN
    head = _HEAD.match(text_line)
    body = text_line[head.end() :] if head else b""
    if head and crc32c(body) == int(head[1], 16):
        return _State.WHOLE
    if _is_json(text_line):
        # Without a checksum it is of an older release: that it can be read is all that can be known of it.
        return _State.DAMAGED if head or _parsed(text_line) is None else _State.WHOLE
    begun = b'{"'.startswith(text_line[:2]) and not text_line.endswith(b"}")
    is_torn = begun and (head is None or len(body) < int(head[2], 16))
    return _State.TORN if is_torn else _State.DAMAGED


def _is_json(text_line: bytes) -> bool:
    try:
        json.loads(text_line)
    except UNREADABLE:
        return False
    return True


def _parsed(text_line: bytes) -> ArchivedTable | None:
    try:
        document = json.loads(text_line)
        version = obinlog_read.definition(json.dumps(document["definition"]).encode())
        first_ts = int(document["first_commit_ts"])
        return ArchivedTable(first_ts, str(document["schema"]), str(document["table"]), version)
    except (*UNREADABLE, Corruption):
        return None
