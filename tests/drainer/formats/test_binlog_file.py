"""Binlog files: names and order, which bytes are records, what is an end and what is damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from drainer.formats import binlog_file
from drainer.formats.binlog_directory import BinlogDirectory
from drainer.formats.binlog_file import Place, Synced
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Corruption, DirectoryLocked
from tidb_binlog.record import RecordError, encode_file

PAYLOADS = [b"payload", b"binlogtest", b"x" * 60, b"", b"last"]


def reading(data: bytes) -> binlog_file.Read:
    return lambda offset, size: data[offset : offset + size]


def open_directory(path: Path) -> BinlogDirectory:
    return BinlogDirectory(str(path), ManualClock())


def written(path: Path, payloads: list[bytes] = PAYLOADS, *, rotate_after: int = -1) -> list[Path]:
    """A directory with records, closed; its files."""
    directory = open_directory(path)
    for number, payload in enumerate(payloads):
        directory.append([encode_file(payload)])
        if number == rotate_after:
            directory.rotate()
    directory.sync()
    directory.close()
    return sorted(path.glob("binlog-*"))


def found(path: Path) -> list[bytes]:
    directory = open_directory(path)
    try:
        return [
            file.payload(place)
            for index, file in directory.files.items()
            for place in directory.places[index]
        ]
    finally:
        directory.close()


def test_the_bytes_of_a_frame() -> None:
    assert encode_file(b"payload").hex() == "04051b1c07000000000000007061796c6f61647069e3f4"
    assert encode_file(b"binlogtest").hex() == "04051b1c0a0000000000000062696e6c6f67746573741e0b0549"


def test_names_are_those_of_the_go_drainer() -> None:
    assert binlog_file.file_name(3, "20261121014819") == "binlog-0000000000000003-20261121014819"
    names = [
        "binlog-0000000000000002-20261121014820",
        ".lock",
        "savepoint",
        "binlog-1",
        "binlog-0000000000000003-20261121014821-4567",
        "binlog-x",
        "binlog-0000000000000001-2026.tmp",
    ]
    assert [index for index, _ in binlog_file.in_order("d", names)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["binlog-0", "binlog-2"], "index 1 is missing"),
        (["binlog-5", "binlog-0000000000000005-20261121014819"], "two files have the index 5"),
        (["binlog-0000000000000001-20261121014819-77.tar.gz"], "compressed"),
    ],
)
def test_a_directory_that_cannot_be_right(names: list[str], what: str) -> None:
    with pytest.raises(Corruption, match=what):
        binlog_file.in_order("d", names)


def test_a_compressed_file_counts_where_it_may_and_its_segment_is_gone() -> None:
    third = "binlog-0000000000000003-20261121014821"
    names = [f"{third}-77.zst", "binlog-0000000000000004-20261121014822"]
    assert binlog_file.in_order("d", names, compressed=True) == [(3, names[0]), (4, names[1])]
    assert binlog_file.plain_name(names[0]) == third
    assert binlog_file.in_order("d", [*names, third], compressed=True) == [(3, third), (4, names[1])]


def test_places_are_walked_from_header_to_header() -> None:
    data = b"".join(map(encode_file, PAYLOADS))
    places = list(binlog_file.places(reading(data), len(data)))
    assert [data[place.start : place.start + place.size] for place in places] == PAYLOADS
    assert [place.end for place in places[:-1]] == [place.record for place in places[1:]]
    assert places[-1].end == len(data)


def test_a_checksum_is_compared_in_stretches() -> None:
    data = bytearray(encode_file(bytes(3 << 20)))
    place = Place(12, 3 << 20)
    binlog_file.check(reading(bytes(data)), place)
    data[2 << 20] ^= 1
    with pytest.raises(RecordError, match="checksum"):
        binlog_file.check(reading(bytes(data)), place)


def test_what_is_an_end_and_what_is_damage() -> None:
    """By where the error is, what was synced, and what the bytes are."""
    early, wrong = RecordError(10, "ends early", True), RecordError(10, "wrong magic", False)
    zeros, other = reading(bytes(40)), reading(b"\1" * 40)
    torn = binlog_file.is_torn_end
    for read in (zeros, other):
        assert torn(early, 4, None, read, 40)
        assert torn(early, 4, Synced(3, 99), read, 40)
        for error in (early, wrong):
            assert torn(error, 4, Synced(4, 10), read, 40)
            assert not torn(error, 4, Synced(4, 11), read, 40)
    assert torn(wrong, 4, None, zeros, 40)
    assert not torn(wrong, 4, None, other, 40)


def test_a_file_cut_at_every_byte_ends_with_its_last_whole_record(tmp_path: Path) -> None:
    """As a kill leaves it: the mark stands where the last sync ended, before what is cut."""
    (path,) = written(tmp_path / "log")
    data = path.read_bytes()
    ends = [place.end for place in binlog_file.places(reading(data), len(data))]
    (path.parent / ".synced").unlink()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        whole = sum(end <= size for end in ends)
        assert found(path.parent) == PAYLOADS[:whole]
        assert path.stat().st_size == (ends[whole - 1] if whole else 0)  # cut before anything is appended
        directory = open_directory(path.parent)
        directory.append([encode_file(b"after")])
        directory.close()
        assert found(path.parent) == [*PAYLOADS[:whole], b"after"]


def test_what_was_synced_and_is_gone_is_damage(tmp_path: Path) -> None:
    (path,) = written(tmp_path / "log")
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(Corruption, match=r"binlog-0000000000000000-\d+: offset \d+: "):
            found(path.parent)


def test_a_file_that_was_synced_and_is_gone_is_damage(tmp_path: Path) -> None:
    first, second = written(tmp_path / "log", rotate_after=2)
    second.unlink()
    with pytest.raises(Corruption, match=f"{first.name}: .* bytes of file 1 were synced"):
        found(first.parent)
    first.unlink()  # all of it was moved away: begin anew
    assert found(first.parent) == []


@pytest.mark.parametrize("tail", [b"\0" * 20, b"\xff" * 3, b"\0" * 4096, b"\xa5" * 700])
def test_any_tail_that_was_never_synced_is_cut(tmp_path: Path, tail: bytes) -> None:
    (path,) = written(tmp_path / "log")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + tail)
    assert found(path.parent) == PAYLOADS
    assert path.stat().st_size == size


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    """In the file that was synced; none is taken for an end, none goes through unseen."""
    (path,) = written(tmp_path / "log")
    data = path.read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            path.write_bytes(data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :])
            with pytest.raises(Corruption, match="offset"):
                found(path.parent)


def test_a_record_that_is_torn_in_an_earlier_file_is_damage(tmp_path: Path) -> None:
    first, second = written(tmp_path / "log", rotate_after=2)
    assert found(first.parent) == PAYLOADS
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(Corruption, match=rf"{first.name}: offset \d+: record ends early") as error:
        found(first.parent)
    assert "cut the file there, remove the files after it" in error.value.hint
    assert second.exists()


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_payload_that_looks_like_a_record_is_never_one(tmp_path: Path, cut: int) -> None:
    """A torn record whose payload holds whole records: they do not come to light."""
    inside = encode_file(b"phantom") * 3
    (path,) = written(tmp_path / "log", [b"first", inside])
    data = path.read_bytes()
    (path.parent / ".synced").unlink()
    path.write_bytes(data[:-cut])
    assert found(path.parent) == [b"first"]


def test_a_second_process_is_told_and_does_not_wait(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "log")
    with pytest.raises(DirectoryLocked, match="file already locked"):
        open_directory(tmp_path / "log")
    newest = directory.newest.path
    directory.close()
    directory = open_directory(tmp_path / "log")
    (tmp_path / "log" / ".lock").unlink()  # a Go drainer loses its lock on it soon after its start
    with pytest.raises(DirectoryLocked, match=Path(newest).name):
        open_directory(tmp_path / "log")
    directory.close()


def test_the_newest_file_is_never_removed(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "log")
    for _ in range(3):
        directory.rotate()
    directory.remove([0, 1])
    assert sorted(directory.files) == [2, 3]
    with pytest.raises(AssertionError):
        directory.remove([3])
    directory.close()


def test_modes_are_private(tmp_path: Path) -> None:
    (path,) = written(tmp_path / "log")
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
