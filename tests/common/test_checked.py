"""Files that are believed later: whichever bit is flipped, they say the same, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from drainer.checkpoint.savepoint import Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.formats.binlog_directory import BinlogDirectory
from drainer.formats.segment_index import SegmentIndex
from drainer.mysql.chunks.chunk import Chunk
from drainer.points.dump.dump_directory import DumpDirectory
from drainer.points.image.manifest import Manifest, TableImage
from drainer.points.image.objects import DatabaseObject, Objects
from drainer.sink.batch.positions import PositionFile
from drainer.sink.kafka.destinations import PartitionCounts
from pump.storage.data_dir import DataDir
from tidb_binlog import checked
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import BinlogError, Corruption

TS = 470_607_835_489_370_114
IMAGE = Manifest(TS, "", "", "", ("a.*",), (TableImage("a", "t", "a.t", 7, "8", "{}", {"part": 5}),))
OBJECTS = Objects((DatabaseObject("a", "utf8mb4", "utf8mb4_bin"),), ())
CHUNKS = [Chunk(0, ("id",), (), (b"100",)), Chunk(1, ("id",), (b"100",), ())]
File = tuple[str, Callable[[str], object], Callable[[str], object]]
"""Its name, how it is written and read, given the directory."""


def write_index(place: str) -> None:
    Path(place, "index").write_bytes(SegmentIndex(first_ts=TS, last_ts=TS + 5).to_json())


def read_index(place: str) -> object:
    found = SegmentIndex.from_json(Path(place, "index").read_bytes())
    if found is None:
        raise Corruption("it is not believed")
    return found


def dump(place: str, do: Callable[[DumpDirectory], object]) -> object:
    made = DumpDirectory(place)
    try:
        return do(made)
    finally:
        made.close()


def write_chunks(place: str) -> None:
    def do(made: DumpDirectory) -> None:
        made.begin(TS)
        for chunk in CHUNKS:
            made.add("a.t", [chunk])

    dump(place, do)


def relay(place: str, do: Callable[[BinlogDirectory], object]) -> object:
    made = BinlogDirectory(place, ManualClock())
    try:
        return do(made)
    finally:
        made.close()


def pump(place: str, do: Callable[[DataDir], object]) -> object:
    made = DataDir(f"{place}/pump")
    try:
        return do(made)
    finally:
        made.close()


FILES: list[File] = [
    (
        "savepoint",
        lambda place: Savepoint(place).save(Checkpoint(TS, True, 82)),
        lambda place: Savepoint(place).load(),
    ),
    (".begin", lambda place: Savepoint(place).begin(TS), lambda place: Savepoint(place).begin(5)),
    (
        "position",
        lambda place: PositionFile(f"{place}/position").save(TS),
        lambda place: PositionFile(f"{place}/position").load(),
    ),
    (
        "kafka-partitions.json",
        lambda place: PartitionCounts(place).store("orders", 12),
        lambda place: PartitionCounts(place).of("orders"),
    ),
    ("manifest.json", IMAGE.store, Manifest.load),
    ("schema.json", OBJECTS.store, lambda place: Objects.load(place, IMAGE)),
    ("index", write_index, read_index),
    (".dump/state.json", write_chunks, lambda place: dump(place, lambda made: made.ts)),
    # Its last line may be torn: then it is made again.
    (".dump/a.t", write_chunks, lambda place: dump(place, lambda made: made.chunks("a.t")[:1])),
    (
        ".purged",
        lambda place: relay(place, lambda made: made.note_purged(TS)),
        lambda place: relay(place, lambda made: made.purged_ts),
    ),
    *(
        (
            f"pump/{name}",
            lambda place: pump(
                place, lambda made: made.keep_purged(TS, 7) or made.keep_age_anchor("1763868000 5")
            ),
            lambda place: pump(place, lambda made: (made.purged_ts, made.age_anchor.split("\n")[0])),
        )
        for name in (".purged", ".age")
    ),
]


def flips(data: bytes) -> Iterator[bytes]:
    """Each bit of a short file, some of a longer one."""
    places = [(at, bit) for at in range(len(data)) for bit in range(8)]
    for at, bit in Random(26).sample(places, min(len(places), 1000)):
        yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


@pytest.mark.parametrize(("name", "write", "read"), FILES, ids=[name for name, *_ in FILES])
def test_a_flipped_bit_is_no_other_value(
    tmp_path: Path, name: str, write: Callable[[str], object], read: Callable[[str], object]
) -> None:
    write(str(tmp_path))
    path = tmp_path / name
    data, right, refused = path.read_bytes(), read(str(tmp_path)), 0
    for other in flips(data):
        path.write_bytes(other)
        try:
            assert read(str(tmp_path)) == right, other
        except BinlogError:
            refused += 1
    assert refused > 50
    path.write_bytes(data)
    assert read(str(tmp_path)) == right


def test_what_has_no_checksum_is_taken_as_it_is() -> None:
    assert checked.read_document(b'{"a": 1}') == {"a": 1}
    assert checked.read_document(b"[1]") == [1]
    assert checked.read_text("commitTS = 5\n") == "commitTS = 5\n"
    assert checked.read_document(checked.document({"a": "ä"}, indent=1)) == {"a": "ä"}
    assert checked.read_text(checked.text("ä")) == "ä"
