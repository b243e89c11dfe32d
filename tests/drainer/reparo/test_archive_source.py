"""Archive source: records become the stream of a sink, in order, each once, whatever wrote them twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from drainer.formats.pb import PbEncoder
from drainer.mysql.connection import Target
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import of_archive
from drainer.reading.archive.files.framing import file_records
from drainer.reading.archive.files.segments import survey
from drainer.reading.archive.files.selection import Selection
from drainer.reparo import archive_source
from drainer.reparo.archive_source import ArchivedTables, ArchiveSource
from drainer.stream.pull.merged import Spilled
from drainer.stream.rules.rule_set import Rules
from drainer.txn import Ddl, Item, Transaction
from tests.spark.support.growing import FIRST_TS, ArchiveWriter
from tests.spark.support.mixed_history import MixedHistory
from tidb_binlog.errors import Corruption
from tidb_binlog.record import encode_file

NOWHERE = Target("nowhere.invalid", 1, "", "")
ENCODER = PbEncoder()


def shown(item: Item) -> tuple[int, str, bytes]:
    """An item in a form that does not depend on how its rows were encoded."""
    if isinstance(item, Ddl):
        return item.commit_ts, item.query, b""
    return item.commit_ts, "", ENCODER.transaction(item)


def source_of(path: Path, after_ts: int = 0, **range_: int) -> ArchiveSource:
    found = survey(Place.of(str(path), {}))
    tables = ArchivedTables(of_archive(found.location, found), NOWHERE, Rules().router.route)
    source = ArchiveSource(found, Selection(**range_), tables, Rules())
    source.take(after_ts)
    return source


def stream(source: ArchiveSource) -> tuple[list[tuple[int, str, bytes]], int]:
    """Everything, and the watermark at the end. Pieces of a transaction are put together."""
    found: list[tuple[int, str, bytes]] = []
    marks: list[int] = []

    def whole(spilled: Spilled) -> Transaction:
        pieces = list(source.pieces(spilled))
        assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        tables = tuple(events for piece in pieces for events in piece.tables)
        ordinals = [events.first_ordinal + place for events in tables for place in range(len(events.rows))]
        assert ordinals == list(range(len(ordinals)))
        return Transaction(0, spilled.commit_ts, tables, 0)

    async def read() -> None:
        async for batch in source.batches():
            for entry in batch.entries:
                large = entry.spilled
                found.append(shown(source.translate(entry) if large is None else whole(large)))
            marks.append(batch.watermark)

    asyncio.run(read())
    assert marks == sorted(marks)
    return found, marks[-1]


def written(path: Path, items: list[Item], segment_bytes: int = 20_000) -> Path:
    writer = ArchiveWriter(path, segment_bytes)
    writer.write(iter(items))
    writer.close()
    return path


@pytest.fixture
def items() -> list[Item]:
    return list(MixedHistory(1).items(200, 90))


def test_what_was_written_comes_in_order_once(tmp_path: Path, items: list[Item]) -> None:
    source = source_of(written(tmp_path, items))
    found, mark = stream(source)
    assert found == [shown(item) for item in items]
    assert mark == items[-1].commit_ts
    assert (source.seen.first_ts, source.seen.last_ts) == (items[0].commit_ts, items[-1].commit_ts)
    assert source.seen.bytes == source.seen.bytes_all > 0
    assert source.seen.ddl == 1


def test_the_range_is_inclusive_and_a_position_cuts_it(tmp_path: Path, items: list[Item]) -> None:
    path = written(tmp_path, items)
    start, stop = items[20].commit_ts, items[120].commit_ts
    found, mark = stream(source_of(path, start=start, stop=stop))
    assert found == [shown(item) for item in items[20:121]]
    assert mark == stop
    found, mark = stream(source_of(path, items[50].commit_ts, start=start, stop=stop))
    assert found == [shown(item) for item in items[51:121]]
    assert mark == stop


def test_the_end_is_that_of_the_archive_where_more_may_come(tmp_path: Path, items: list[Item]) -> None:
    path = written(tmp_path, items)
    last_ts = items[-1].commit_ts
    assert stream(source_of(path, stop=last_ts + 1))[1] == last_ts
    assert stream(source_of(path, last_ts)) == ([], last_ts)


def test_a_large_transaction_comes_in_pieces(
    tmp_path: Path, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_source, "PIECE_BYTES", 200)
    found, _ = stream(source_of(written(tmp_path, items)))
    assert found == [shown(item) for item in items]


def go_file(path: Path, index: int, payloads: list[bytes]) -> None:
    """A file as a Go Drainer leaves it: without an index beside it."""
    path.mkdir(exist_ok=True)
    data = b"".join(map(encode_file, payloads))
    (path / f"binlog-{index:016d}-20260101000000").write_bytes(data)


def payloads_of(path: Path) -> list[bytes]:
    found = []
    for file in sorted(path.glob("binlog-*")):
        data = file.read_bytes()
        found += [payload for _, payload in file_records(lambda at, size, data=data: data[at : at + size])]
    return found


def definitions_of(archive: Path, go: Path) -> None:
    """The Go Drainer's files get definitions as well, so that no downstream has to be asked."""
    names = sorted(path.name for path in go.glob("binlog-*"))
    (go / "index").mkdir()
    texts = [path.read_bytes() for path in sorted((archive / "index").glob("*.tables.jsonl"))]
    (go / "index" / f"{names[0]}.tables.jsonl").write_bytes(b"".join(texts))


@pytest.mark.parametrize("cut", [1, 60, 120, 180])
@pytest.mark.parametrize("same_file", [True, False])
def test_what_a_drainer_wrote_again_after_a_restart_is_left_out(
    tmp_path: Path, items: list[Item], cut: int, *, same_file: bool
) -> None:
    archive, go = written(tmp_path / "archive", items), tmp_path / "go"
    payloads = payloads_of(archive)
    assert len(payloads) == len(items)
    again = [payloads[:cut], payloads[cut // 2 :]]
    if same_file:
        go_file(go, 0, again[0] + again[1])
    else:
        go_file(go, 0, again[0])
        go_file(go, 1, again[1])
        go_file(go, 2, [])
    definitions_of(archive, go)
    found, mark = stream(source_of(go))
    assert found == [shown(item) for item in items]
    assert mark == items[-1].commit_ts


def test_what_is_out_of_order_and_was_not_there_before_is_damage(tmp_path: Path, items: list[Item]) -> None:
    archive, go = written(tmp_path / "archive", items), tmp_path / "go"
    payloads = payloads_of(archive)
    go_file(go, 0, payloads[20:40])
    go_file(go, 1, payloads[10:12] + payloads[40:50])
    definitions_of(archive, go)
    with pytest.raises(Corruption, match=r"binlog-0{15}1-\d+: offset 0: commit_ts \d+ comes after"):
        stream(source_of(go))


def test_an_empty_archive_has_an_end(tmp_path: Path) -> None:
    go_file(tmp_path / "go", 0, [])
    assert stream(source_of(tmp_path / "go")) == ([], 0)
    assert stream(source_of(tmp_path / "go", start=FIRST_TS)) == ([], 0)
