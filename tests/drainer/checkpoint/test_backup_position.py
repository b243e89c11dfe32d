"""Positions of backups: what Dumpling and BR write, and what looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.checkpoint.backup_position import BackupPosition, of_br, of_dumpling
from tests.drainer.support.payloads import number
from tidb_binlog.errors import ConfigError, Corruption, Rejected
from tidb_binlog.rowcodec.varint import put_uvarint

TS = 420_747_102_018_863_124
DUMP = f"""Started dump at: 2020-11-10 10:40:19
SHOW MASTER STATUS:
\tLog: tidb-binlog
\tPos: {TS}
\tGTID:

Finished dump at: 2020-11-10 10:40:20
"""
MYSQL = "\tLog: mysql-bin.000003\n\tPos: 1274\n\tGTID:5b5a8e4e-9b43-11ea-900d-0242ac170002:1-10,\n5b64:1-7\n"


def written(directory: Path, name: str, content: bytes) -> str:
    (directory / name).write_bytes(content)
    return str(directory)


def dump(directory: Path, text: str) -> str:
    return written(directory, "metadata", text.encode())


def test_a_dump_of_a_tidb(tmp_path: Path) -> None:
    assert of_dumpling(dump(tmp_path, DUMP)) == BackupPosition(f"{tmp_path}/metadata", TS)


def test_only_the_status_of_the_beginning_counts(tmp_path: Path) -> None:
    other = "SHOW SLAVE STATUS:\n\tHost: a\n\tLog: mysql-bin.1\n\tPos: 700\n\n"
    header = "SHOW MASTER STATUS: /* AFTER CONNECTION POOL ESTABLISHED */"
    later = f"{header}\n\tLog: tidb-binlog\n\tPos: {TS + 9}\n\n"
    assert of_dumpling(dump(tmp_path, other + DUMP + later)).ts == TS


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (DUMP.replace("Finished", "Unfinished"), Rejected, "not finished"),
        (DUMP.replace(f"\tLog: tidb-binlog\n\tPos: {TS}\n\tGTID:\n", MYSQL), Rejected, "'mysql-bin.000003'"),
        (DUMP.replace("SHOW MASTER STATUS:", "SHOW SLAVE STATUS:"), Rejected, "not named"),
        (DUMP.replace(str(TS), "2020-11-10 10:40:19"), Corruption, "no timestamp"),
        (DUMP.replace(str(TS), "1274"), Corruption, "no timestamp"),
        (DUMP.replace(str(TS), "9" * 40), Corruption, "no timestamp"),
        ("", Rejected, "not finished"),
    ],
)
def test_what_is_no_finished_dump_of_a_tidb(
    tmp_path: Path, text: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as raised:
        of_dumpling(dump(tmp_path, text))
    assert raised.value.hint  # type: ignore[attr-defined]


def text(field: int, value: bytes) -> bytes:
    return put_uvarint(field << 3 | 2) + put_uvarint(len(value)) + value


FILES = text(4, b"\x0a\x05a.sst") * 50_000 + text(7, b"\x08\x01")
FULL = number(1, 6_901_234_567_890) + text(2, b"5.4.0") + FILES + number(5, TS) + number(6, TS)


def test_a_full_backup_and_one_of_later_changes(tmp_path: Path) -> None:
    place = f"{tmp_path}/backupmeta"
    assert of_br(written(tmp_path, "backupmeta", FULL)) == BackupPosition(place, TS, 6_901_234_567_890)
    later = FULL.replace(number(5, TS), number(5, TS - 7))
    assert of_br(written(tmp_path, "backupmeta", later)).from_ts == TS - 7
    without = FULL.replace(number(5, TS), b"")
    assert of_br(written(tmp_path, "backupmeta", without)).from_ts == 0


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b"", Corruption, "encrypted, or damaged"),
        (bytes(range(256)) * 5, Corruption, "encrypted, or damaged"),
        (FULL[:-1], Corruption, "encrypted, or damaged"),
        (FULL[:-300], Corruption, "encrypted, or damaged"),
        (FULL.replace(number(6, TS), b""), Corruption, "encrypted, or damaged"),
        (FULL.replace(number(6, TS), number(6, 77)), Corruption, "encrypted, or damaged"),
        (FULL.replace(number(5, TS), number(5, TS + 1)), Corruption, "encrypted, or damaged"),
        (FULL + number(8, 1), Rejected, "raw keys"),
    ],
)
def test_what_is_no_backup_of_tables(
    tmp_path: Path, content: bytes, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as raised:
        of_br(written(tmp_path, "backupmeta", content))
    assert raised.value.hint  # type: ignore[attr-defined]


def test_a_directory_without_their_files(tmp_path: Path) -> None:
    for read in (of_dumpling, of_br):
        with pytest.raises(ConfigError, match="No such file") as raised:
            read(str(tmp_path))
        assert "once it is done" in raised.value.hint
