"""LevelDB's files before LevelDB reads them: what real pumps left is whole, and no hole is missed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import google_crc32c
import pytest

from pump.index import index_files
from pump.index.index_files import Broken, Cut, Whole
from tests.pump.support import corpus

BLOCK = 32 << 10
RECORDINGS = [*corpus.recordings(killed=False), *corpus.recordings(killed=True)]


def judge(files: dict[str, bytes]) -> Whole | Broken:
    sizes = {name: len(data) for name, data in files.items()}
    return index_files.judge(sizes, lambda name, offset, size: files[name][offset : offset + size])


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_what_a_go_pump_left_is_whole(recording: corpus.Recording, tmp_path: Path) -> None:
    kv = recording.unpack(tmp_path) / "kv"
    files = {path.name: path.read_bytes() for path in kv.iterdir()}
    assert any(data for name, data in files.items() if name.endswith((".log", ".ldb")))
    assert judge(files) == Whole()


# -- files made here, from the description of the format alone -----------------------------------------


def in_log_format(records: Sequence[bytes]) -> bytes:
    """Records in blocks, as LevelDB's writer lays them out."""
    data = b""
    for record in records:
        left, is_first = record, True
        while is_first or left:
            room = BLOCK - len(data) % BLOCK
            if room < 7:
                data += bytes(room)
                room = BLOCK
            piece, left = left[: room - 7], left[room - 7 :]
            kind = bytes(
                [{(True, True): 1, (True, False): 2, (False, False): 3}.get((is_first, not left), 4)]
            )
            found = google_crc32c.value(kind + piece)
            masked = ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF
            data += struct.pack("<IH", masked, len(piece)) + kind + piece
            is_first = False
    return data


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def edit(*, log: int, last: int, tables: Sequence[tuple[int, int]] = (), gone: Sequence[int] = ()) -> bytes:
    """`tables`: number and size of new ones; `gone`: numbers."""
    data = (
        b"\x01" + varint(4) + b"name" + b"\x02" + varint(log) + b"\x03" + varint(99) + b"\x04" + varint(last)
    )
    for number in gone:
        data += b"\x06" + varint(0) + varint(number)
    for number, size in tables:
        data += b"\x07" + varint(0) + varint(number) + varint(size) + varint(1) + b"a" + varint(1) + b"z"
    return data


def batch(first: int, count: int, size: int = 40) -> bytes:
    return struct.pack("<QI", first, count) + b"v" * size


def directory(*logs: bytes, edits: Sequence[bytes] = (edit(log=5, last=10),)) -> dict[str, bytes]:
    """`logs` are 000005.log, 000006.log and so on."""
    named = {f"{number:06d}.log": data for number, data in enumerate(logs, 5)}
    return {"CURRENT": b"MANIFEST-000002\n", "MANIFEST-000002": in_log_format(edits), **named}


def test_logs_are_cut_where_they_stop_to_follow_each_other() -> None:
    first, second = in_log_format([batch(11, 3), batch(14, 0), batch(14, 1)]), in_log_format([batch(15, 2)])
    assert judge(directory(first, second)) == Whole()
    assert judge(directory(first, b"", second)) == Whole()
    assert judge(directory(first, in_log_format([batch(16, 2)]))) == Whole(
        (Cut("000006.log", 0, "a batch is not the next"),)
    )
    # The first lost its end: what stands in the second would hide that.
    torn = Whole(
        (
            Cut("000005.log", 118, "the file ends early"),
            Cut("000006.log", 0, "000005.log: offset 118: the file ends early"),
        )
    )
    assert judge(directory(first[:-1], second)) == torn
    assert judge(directory(in_log_format([batch(12, 1)]))) == Whole(
        (Cut("000005.log", 0, "a batch is not the next"),)
    )
    assert judge(directory(in_log_format([batch(8, 1), b"short"]))) == Whole(
        (Cut("000005.log", 59, "a batch is not the next"),)
    )


def test_every_zeroed_sector_and_every_lost_record_cuts_there() -> None:
    batches = [batch(11 + number, 1, 500 + 977 * number % 40_000) for number in range(40)]
    whole = in_log_format(batches)
    assert len(whole) > 10 * BLOCK
    starts = [len(in_log_format(batches[:number])) for number in range(41)]
    for at in range(0, len(whole), 512):
        damaged = whole[:at] + bytes(min(512, len(whole) - at)) + whole[at + 512 :]
        (cut,) = judge(directory(damaged)).cuts  # type: ignore[union-attr]
        last = max(start for start in starts if start <= at)
        assert cut.size == last or (cut.size % BLOCK == 0 and cut.size - last < 7)
    for lost in range(39):
        left = in_log_format(batches[:lost] + batches[lost + 1 :])
        (cut,) = judge(directory(left)).cuts  # type: ignore[union-attr]
        assert cut.size == starts[lost]


def test_an_edit_that_is_lost_shows_by_what_is_gone() -> None:
    edits = [
        edit(log=4, last=3),
        edit(log=5, last=10, tables=[(8, 3)]),
        edit(log=5, last=12, tables=[(9, 4)], gone=[8]),
    ]
    files = directory(in_log_format([batch(11, 3)]), edits=edits) | {"000009.ldb": b"1234"}
    assert judge(files) == Whole()
    for count, reason in ((2, "000008.ldb has 0 of 3 bytes"), (1, "000004.log is not there"), (0, None)):
        for manifest in (
            in_log_format(edits[:count]),
            in_log_format(edits[:count]) + b"torn",
            in_log_format(edits[:count]) + bytes(50),
        ):
            found = judge(files | {"MANIFEST-000002": manifest})
            if reason is None:
                reason = "the MANIFEST names no log, and there is one"
            assert isinstance(found, Broken)
            assert found.reason.startswith(reason)
    # Nothing had been removed when the machine stopped in the middle of writing the edit.
    start = len(in_log_format(edits[:2]))
    found = judge(files | {"MANIFEST-000002": files["MANIFEST-000002"][:-1], "000008.ldb": b"123"})
    assert found == Whole((Cut("MANIFEST-000002", start, "the file ends early"),))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"CURRENT": None}, "CURRENT is not there, 000005.log is"),
        ({"CURRENT": b"MANIFEST-00000"}, "CURRENT names no MANIFEST"),
        ({"MANIFEST-000002": None}, "MANIFEST-000002 is not there"),
        ({"MANIFEST-000002": in_log_format([b"\x63"])}, "MANIFEST-000002 holds an edit that cannot be read"),
        ({"MANIFEST-000002": in_log_format([b"\x02"])}, "MANIFEST-000002 holds an edit that cannot be read"),
        ({"MANIFEST-000002": b"0123\x01\x00\x01a"}, "MANIFEST-000002: offset 0: "),
    ],
)
def test_what_names_the_rest_must_be_there(change: dict[str, bytes | None], reason: str) -> None:
    files = directory(in_log_format([batch(11, 3)]))
    changed = {name: data for name, data in (files | change).items() if data is not None}
    found = judge(changed)
    assert isinstance(found, Broken)
    assert reason in found.reason


def test_an_empty_directory_is_whole() -> None:
    assert judge({}) == Whole()
    assert judge({"LOCK": b"", "LOG": b"text", "000003.log": b""}) == Whole()
    new = {"CURRENT": b"MANIFEST-000001\n", "MANIFEST-000001": in_log_format([edit(log=0, last=0)])}
    assert judge(new) == judge(new | {"000003.log": b""}) == Whole()
