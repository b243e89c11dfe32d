"""Printing: lines as the Go tool printed them for the same records, but for lists of numbers."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path

import pytest

from drainer.reparo.options import ReparoConfig
from drainer.reparo.ordered_records import surveyed
from drainer.reparo.viewing import Viewer, lines_of_rows, shown_float
from tests.spark.support.replay_world import SOURCES
from tidb_binlog.errors import Corruption
from tidb_binlog.wire import pb_binlog_pb2 as pb

# SHA-256 of what the Go tool printed for what its Drainer wrote: scenarios without TEXT and BLOB.
GO_PRINTED = {
    "basic": "b6e104e03d3c0e47063217dd80443f5e62cb876574f137692388bf18b61992a5",
    "txn": "840dc29a16cfb43f30b8dd5d25b7d3e209640ef79e89607cf6c7578439967280",
}


def printed(archive: Path, **more: object) -> str:
    config = ReparoConfig(data_dir=str(archive), **more)  # type: ignore[arg-type]
    config.validate()
    out = io.BytesIO()
    Viewer(config, surveyed(config), lambda: False).print_all(out)
    return out.getvalue().decode()


GO_FLOATS = [
    (0.0, "0"),
    (-0.0, "-0"),
    (1.0, "1"),
    (0.5, "0.5"),
    (-12345.678, "-12345.678"),
    (100000.0, "100000"),
    (1000000.0, "1e+06"),
    (16777216.0, "1.6777216e+07"),
    (123456789012345.12, "1.2345678901234512e+14"),
    (0.0001, "0.0001"),
    (0.00001, "1e-05"),
    (1.7976931348623157e308, "1.7976931348623157e+308"),
    (5e-324, "5e-324"),
    (3.4028234663852886e38, "3.4028234663852886e+38"),
]


@pytest.mark.parametrize(("value", "wanted"), GO_FLOATS)
def test_floats_are_printed_as_go_prints_them(value: float, wanted: str) -> None:
    assert shown_float(value) == wanted


def event(kind: int, mysql_type: str, *datums: bytes) -> bytes:
    column = pb.Column(name="c", tp=b"\x0f", mysql_type=mysql_type, value=datums[0])
    if len(datums) > 1:
        column.changed_value = datums[1]
    one = pb.Event(schema_name="d", table_name="t", tp=kind, row=[column.SerializeToString()])
    data = pb.DMLData(events=[one])
    return pb.Binlog(tp=pb.DML, commit_ts=7, dml_data=data).SerializeToString()


VALUES = [
    ("varchar", b"\x02\x04hi", "hi"),
    ("varchar", b"\x02\x06a\x1bb", "a\\x1bb"),
    ("varchar", b"\x02\x06a\nb", "a\\nb"),
    ("varchar", b"\x02\x02\xff", "0xff"),
    ("text", b"\x02\x04hi", "hi"),
    ("blob", b"\x02\x04hi", "0x6869"),
    ("binary", b"\x02\x02\x00", "0x00"),
    ("int", b"\x08\x03", "-2"),
    ("bigint", b"\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "18446744073709551615"),
    ("int", b"\x00", "<nil>"),
]


@pytest.mark.parametrize(("mysql_type", "datum", "shown"), VALUES)
def test_values(mysql_type: str, datum: bytes, shown: str) -> None:
    lines, rows = lines_of_rows(event(pb.Insert, mysql_type, datum), lambda *_: True)
    assert rows == 1
    assert lines.decode() == f"schema: d; table: t; type: Insert\nc({mysql_type}): {shown}\n"


def test_an_update_has_both_values() -> None:
    lines, _ = lines_of_rows(event(pb.Update, "int", b"\x08\x02", b"\x00"), lambda *_: True)
    assert lines.decode() == "schema: d; table: t; type: Update\nc(int): 1 => <nil>\n"


def test_what_is_not_wanted_is_not_printed() -> None:
    payload = event(pb.Delete, "int", b"\x08\x02")
    assert lines_of_rows(payload, lambda schema, table, kind: kind != 2) == (b"", 0)


@pytest.mark.parametrize("payload", [b"\x08\x00\x10\x07\x1a\x05x", event(0, "int", b"\x44")])
def test_a_row_that_cannot_be_read_is_damage(payload: bytes) -> None:
    with pytest.raises(Corruption, match="of the archive"):
        lines_of_rows(payload, lambda *_: True)


@pytest.mark.parametrize("scenario", GO_PRINTED)
def test_a_recorded_archive_is_printed_as_the_go_tool_prints_it(tmp_path: Path, scenario: str) -> None:
    text = printed(SOURCES["go-events"](scenario, tmp_path / "archive"))
    assert hashlib.sha256(text.encode()).hexdigest() == GO_PRINTED[scenario]


@pytest.mark.parametrize("scenario", ["basic", "types", "keys"])
def test_archives_and_relay_logs_of_both_drainers_print_the_same_rows(tmp_path: Path, scenario: str) -> None:
    """Where the records are the same: ENUM and SET are numbers in all of them."""
    found = {
        source: [
            line
            for line in printed(SOURCES[source](scenario, tmp_path / source)).splitlines()
            if not line.startswith("DDL query")
        ]
        for source in ("go-events", "archive", "relay")
    }
    assert found["archive"] == found["go-events"]
    assert found["relay"] == found["archive"]


def test_ranges_and_filters(tmp_path: Path) -> None:
    archive = SOURCES["go-events"]("types", tmp_path / "archive")
    tables = set(
        re.findall(
            "table: (\\w+);", printed(archive, replicate_do_table=({"db-name": "typ", "tbl-name": "t_i.*"},))
        )
    )
    assert tables == {"t_int"}
    assert printed(archive, stop_tso=1) == ""
