"""Backup position: the timestamp at which a backup by another tool stands, read from what the tool wrote.

    Dumpling   `metadata`, text: under SHOW MASTER STATUS, Log tidb-binlog and Pos, which is the timestamp
    BR         `backupmeta`, the protobuf message backup.BackupMeta: cluster_id 1, start_version 5,
               end_version 6, is_raw_kv 8

Holds  a full backup has exactly the transactions with a commit_ts of at most `ts`; an incremental one those
       above `from_ts` of them
Never  takes a dump that was not finished, one of a MySQL (whose position is no timestamp), or a number that
       is none; decodes what an encrypted backup says
"""

from __future__ import annotations

import os
from typing import Final

from tidb_binlog import tso
from tidb_binlog.errors import BinlogError, ConfigError, Corruption, Rejected
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.protobuf_fields import LENGTH, VARINT, MalformedMessage, fields
from tidb_binlog.tso import Ts

DUMPLING_NAME: Final = "metadata"
BR_NAME: Final = "backupmeta"
_METADATA_BYTES_MAX: Final = 1 << 20
_SECTION: Final = "SHOW MASTER STATUS:"
_FINISHED: Final = "Finished dump at:"
_TIDB_LOG: Final = "tidb-binlog"
_OLDEST_S: Final = 1_420_070_400.0  # 2015: before the first TiDB
_CLUSTER_ID, _START, _END, _IS_RAW = 1, 5, 6, 8
_AT: Final = "find its timestamp out and name it: binlogctl savepoint at TS"


@dataclass(frozen=True, slots=True)
class BackupPosition:
    """`cluster_id` 0: the tool does not say. `from_ts` 0: a full backup."""

    path: str
    ts: Ts
    cluster_id: int = 0
    from_ts: Ts = 0


def of_dumpling(directory: str) -> BackupPosition:
    """Raises `ConfigError`, `Rejected`, `Corruption`."""
    path = os.path.join(directory, DUMPLING_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file.read(_METADATA_BYTES_MAX).splitlines()]
    except UnicodeDecodeError:
        raise Corruption(f"{path} is not text", hint=_AT) from None
    except OSError as error:
        raise _unreadable(path, error, "Dumpling") from None
    if not any(line.startswith(_FINISHED) for line in lines):
        raise Rejected(f"{path}: the dump was not finished", hint="dump again")
    status = _master_status(lines)
    if status.get("Log") != _TIDB_LOG:
        raise Rejected(
            f"{path}: this is no dump of a TiDB: its log is {status.get('Log', 'not named')!r}",
            hint="a program's MySQL or MariaDB is copied by binlogctl load, which finds its timestamp",
        )
    pos = status.get("Pos", "")
    if not _is_ts(int(pos) if tso.is_number(pos) else 0):
        raise Corruption(f"{path}: Pos is {pos[:40]!r}, which is no timestamp", hint=_AT)
    return BackupPosition(path, int(pos))


def of_br(directory: str) -> BackupPosition:
    """Raises `ConfigError`, `Rejected`, `Corruption`."""
    path = os.path.join(directory, BR_NAME)
    try:
        numbers = _numbers(path)
    except OSError as error:
        raise _unreadable(path, error, "BR") from None
    except MalformedMessage:
        raise _not_br(path) from None
    ts, from_ts = numbers.get(_END, 0), numbers.get(_START, 0)
    if numbers.get(_IS_RAW):
        raise Rejected(
            f"{path}: a backup of raw keys has no timestamp", hint="back tables up: br backup full"
        )
    if not numbers.get(_CLUSTER_ID) or not _is_ts(ts) or from_ts > ts:
        raise _not_br(path)
    return BackupPosition(path, ts, numbers[_CLUSTER_ID], from_ts if from_ts < ts else 0)


def _master_status(lines: list[str]) -> dict[str, str]:
    """The first section of that name: a second one stands for a later moment."""
    if _SECTION not in lines:
        return {}
    status: dict[str, str] = {}
    for line in lines[lines.index(_SECTION) + 1 :]:
        name, colon, value = line.partition(":")
        if not colon or name not in ("Log", "Pos", "GTID"):
            break
        status[name] = value.strip()
    return status


def _numbers(path: str) -> dict[int, int]:
    """The numbers at the top of a BackupMeta, which may list a million files beside them."""
    with open(path, "rb", buffering=0) as file:
        number = file.fileno()
        size = os.fstat(number).st_size
        numbers: dict[int, int] = {}
        for tag, value, _ in fields(lambda offset, count: os.pread(number, count, offset), 0, size):
            if tag & 7 not in (VARINT, LENGTH):
                raise MalformedMessage("a kind of field that the message has not")
            if tag & 7 == VARINT:
                numbers[tag >> 3] = value
        return numbers


def _is_ts(ts: Ts) -> bool:
    return ts <= tso.TS_MAX and tso.physical_s(ts) >= _OLDEST_S


def _unreadable(path: str, error: OSError, tool: str) -> BinlogError:
    return ConfigError(
        f"cannot read {path}: {error.strerror}",
        hint=f"name the directory that {tool} wrote to; the file is there once it is done",
    )


def _not_br(path: str) -> BinlogError:
    return Corruption(
        f"{path} cannot be read: it is encrypted, or damaged",
        hint="`br validate decode --field=end-version` says its timestamp; then: binlogctl savepoint at TS",
    )
