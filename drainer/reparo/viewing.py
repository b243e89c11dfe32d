"""Viewing: an archive is printed, or counted, and nothing is written anywhere.

Out    lines on standard output, as the Go tool prints them; a summary
Holds  names are those of the archive. Rows of a relay log are printed as an archive would have them
       Lines are equal to the Go tool's, byte for byte, but for values that it shows as a list of numbers:

    TEXT                          its text; Go: [104 105]
    BLOB, BINARY, BIT as bytes    0x and digits; Go: [104 105], or the bytes as they are
    what is not UTF-8             0x and digits
    what steers a terminal        written out (\\x1b), line breaks too

Tests  tests/drainer/reparo/test_printing.py, tests/drainer/reparo/test_process.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import IO, Final, NamedTuple

from google.protobuf.message import DecodeError

from drainer.formats.pb import PbEncoder
from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.definitions import Definitions, of_archive
from drainer.reading.archive.decode.records import Changes, Piece, SchemaChange
from drainer.reading.archive.files.payload import RELAY, Counts, pb_head, table_name
from drainer.reading.archive.files.segments import Survey
from drainer.reading.archive.files.selection import Selection
from drainer.relay.table_definitions import BINARY_TYPES
from drainer.reparo.ddl_screen import screened
from drainer.reparo.options import ReparoConfig
from drainer.reparo.ordered_records import Seen, ordered
from drainer.reparo.sink_rows import SinkRows
from drainer.reparo.summary import Summary
from drainer.stream.rules.rule_set import Rules
from drainer.txn import Transaction
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.observe.printable import printable
from tidb_binlog.protobuf_fields import utf8_text
from tidb_binlog.rowcodec.codegen import UNEXPECTED
from tidb_binlog.rowcodec.datum import BYTES, FLOAT, NULL_DATUM, UVARINT, VARINT, bytes_span, read_double
from tidb_binlog.rowcodec.varint import svarint, uvarint
from tidb_binlog.tso import Ts
from tidb_binlog.wire import pb_binlog_pb2 as pb

_TYPES: Final = {pb.Insert: b"Insert", pb.Update: b"Update", pb.Delete: b"Delete"}
_NIL: Final = b"<nil>"
_LARGE: Final = 6
_SMALL: Final = -4
_BREAKS: Final = str.maketrans({"\n": "\\n", "\r": "\\r"})

Wants = Callable[[str, str, int], bool]


def lines_of_ddl(query: bytes) -> bytes:
    """`query` as the archive has it, with its `use`."""
    return b"DDL query: " + _text(query) + b"\n"


def lines_of_rows(payload: bytes, wants: Wants) -> tuple[bytes, int]:
    """Of one transaction, and how many rows they are. Raises `Corruption`."""
    try:
        message = pb.Binlog.FromString(payload)
        events = [
            event
            for event in message.dml_data.events
            if wants(utf8_text(event.schema_name), utf8_text(event.table_name), event.tp)
        ]
        return b"".join(part for event in events for part in _event(event)), len(events)
    except (DecodeError, *UNEXPECTED) as error:
        raise Corruption(f"a row of the archive cannot be read: {error}") from None


def _event(event: pb.Event) -> Iterator[bytes]:
    schema, table = printable(event.schema_name).encode(), printable(event.table_name).encode()
    yield b"schema: %b; table: %b; type: %b\n" % (schema, table, _TYPES[event.tp])
    for element in event.row:
        column = pb.Column.FromString(element)
        head = f"{printable(utf8_text(column.name))}({utf8_text(column.mysql_type)}): ".encode()
        value = _value(column.value, column.mysql_type)
        if event.tp == pb.Update:
            value += b" => " + _value(column.changed_value, column.mysql_type)
        yield head + value + b"\n"


def _value(datum: bytes, mysql_type: str) -> bytes:
    if datum == NULL_DATUM:
        return _NIL
    flag = datum[0]
    if flag == BYTES:
        start, end = bytes_span(datum, 0)
        content = datum[start:end]
        return b"0x" + content.hex().encode() if mysql_type in BINARY_TYPES else _text(content)
    if flag == VARINT:
        return b"%d" % svarint(datum, 1)[0]
    if flag == UVARINT:
        return b"%d" % uvarint(datum, 1)[0]
    if flag == FLOAT:
        return shown_float(read_double(datum, 0)[0]).encode()
    raise Corruption(f"a value of the archive has flag {flag:#04x}")


def _text(content: bytes) -> bytes:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return b"0x" + content.hex().encode()
    return printable(text.translate(_BREAKS)).encode()


def shown_float(value: float) -> str:
    """The shortest digits that mean it, with an exponent where Go has one."""
    if math.isinf(value) or math.isnan(value):
        return {"inf": "+Inf", "-inf": "-Inf"}.get(repr(value), "NaN")
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    digits, exponent = _digits(abs(value))
    if value and not _SMALL <= exponent < _LARGE:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{exponent:+03d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    fraction = digits[exponent + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _digits(value: float) -> tuple[str, int]:
    """Shortest decimal digits and the exponent of the first one."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    power = int(exponent or 0) + len(whole) - 1
    digits = whole + fraction
    stripped = digits.lstrip("0")
    if not stripped:
        return "0", 0
    power -= len(digits) - len(stripped)
    return stripped.rstrip("0") or "0", power


_KINDS: Final = 3
_CLOCK: Final = SystemClock()


class _Rows(NamedTuple):
    commit_ts: Ts
    payload: bytes


@dataclass(eq=False)
class Viewer:
    """Prints or counts an archive. `stopped` is asked before every transaction."""

    config: ReparoConfig
    survey: Survey
    stopped: Callable[[], bool]
    seen: Seen = field(default_factory=Seen)
    transactions: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        self._rules = self.config.rules
        self._known: set[tuple[str, str]] = set()  # tables that DDL have named

    def print_all(self, out: IO[bytes]) -> Summary:
        """Every change as lines. Raises `Corruption`, `OSError` of `out`."""
        began_s = _CLOCK.monotonic_s()
        for record in self._records():
            if isinstance(record, SchemaChange):
                if self._takes(record):
                    out.write(lines_of_ddl(record.text))
                continue
            lines, rows = lines_of_rows(record.payload, self._wants)
            out.write(lines)
            self._count(rows)
        out.flush()
        return self._summary(began_s)

    def count_all(self) -> Summary:
        """What would be applied. Raises `Corruption`."""
        began_s = _CLOCK.monotonic_s()
        by_name: dict[bytes, int] = {}
        for record in self._records():
            if isinstance(record, SchemaChange):
                self._takes(record)
                continue
            counts, rows = Counts(), 0
            pb_head(record.payload, 0, counts)
            for name, kinds in counts.items():
                rows_of_table = self._wanted_of(name, kinds)
                by_name[name] = by_name.get(name, 0) + rows_of_table
                rows += rows_of_table
            self._count(rows)
        summary = self._summary(began_s)
        summary.dest = "dry-run"
        summary.rows_by_table = {".".join(table_name(name)): rows for name, rows in by_name.items() if rows}
        return summary

    # -- records ---------------------------------------------------------------------------------

    def _records(self) -> Iterator[_Rows | SchemaChange]:
        selection = Selection(self.config.start, self.config.stop)
        records = self._of_relay(selection) if self.survey.kind == RELAY else self._of_archive(selection)
        for record in records:
            if self.stopped():
                return
            yield record

    def _of_archive(self, selection: Selection) -> Iterator[_Rows | SchemaChange]:
        for record, _ in ordered(self.survey, selection, self.seen):
            yield _Rows(record.commit_ts, record.payload) if isinstance(record, Piece) else record

    def _of_relay(self, selection: Selection) -> Iterator[_Rows | SchemaChange]:
        """A record that was written again has the same rows: the first one counts."""
        definitions: Definitions = of_archive(self.survey.location, self.survey)
        rows, encoder, seen = SinkRows(Rules()), PbEncoder(), self.seen
        for part in self.survey.plan(selection):
            seen.bytes_all += part.size
            for record in reading.read(self.survey.location, part, selection, definitions):
                commit_ts = record.commit_ts if isinstance(record, Changes) else record.ddl.commit_ts
                if commit_ts < seen.last_ts:
                    continue
                seen.first_ts, seen.last_ts = seen.first_ts or commit_ts, commit_ts
                if isinstance(record, Changes):
                    events = tuple(rows.events(record.rows, record.first_seq, commit_ts))
                    yield _Rows(commit_ts, encoder.transaction(Transaction(0, commit_ts, events, 0)))
                    continue
                use = f"use `{record.ddl.schema}`; " if record.ddl.schema else ""
                yield SchemaChange(
                    record.ddl, record.file, record.pos, record.part, f"{use}{record.ddl.query};".encode()
                )

    # -- what is wanted --------------------------------------------------------------------------

    def _takes(self, change: SchemaChange) -> bool:
        ddl = screened(change.ddl, self._rules, self._known)
        self._known.update(name for name in ddl.tables if name[1])
        self.seen.ddl += not ddl.skip
        return not ddl.skip

    def _wants(self, schema: str, table: str, kind: int) -> bool:
        rules = self._rules
        return rules.allows(schema, table) and kind not in rules.events.ignored_rows(schema, table)

    def _wanted_of(self, name: bytes, kinds: list[int]) -> int:
        schema, table = table_name(name)
        return sum(kinds[kind] for kind in range(_KINDS) if self._wants(schema, table, kind))

    def _count(self, rows: int) -> None:
        self.rows += rows
        self.transactions += rows > 0

    def _summary(self, began_s: float) -> Summary:
        return Summary(
            dest=self.config.dest_type,
            finished=not self.stopped(),
            first_ts=self.seen.first_ts,
            last_ts=self.seen.last_ts,
            upto_ts=self.seen.last_ts,
            transactions=self.transactions,
            rows=self.rows,
            ddl=self.seen.ddl,
            seconds=round(_CLOCK.monotonic_s() - began_s, 3),
        )
