"""Archives of every recorded scenario give the transactions and rows that a live stream has."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import drainer
from drainer import Ddl, Transaction, txn
from drainer.changes.row_reader import RowReader
from drainer.places.place import Place
from drainer.reading.archive import archive as archives
from drainer.reading.errors import BinlogsLost, StreamEnded
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tidb_binlog.errors import BinlogError, ConfigError, Corruption

# Rows that were deleted while a column was being added or dropped and did not have it: an archive has what
# the binlog had, a live stream what stands for the rest.
FEWER_COLUMNS = {"ddl-multischema": 1}
Told = tuple[int, list[drainer.Row] | str]


def live(scenario: str) -> list[Told]:
    """What the translator's items are for a program."""
    reader, found = RowReader(), list[Told]()
    for item in items(scenario):
        if isinstance(item, txn.Ddl):
            if not item.skip:
                found.append((item.commit_ts, statement(item.query)))
        elif item.tables:
            found.append((item.commit_ts, list(reader.transaction(item).rows)))
    return found


def rows_of(item: txn.Transaction) -> int:
    return sum(len(events.rows) for events in item.tables)


def statement(query: str) -> str:
    return query.strip().rstrip(";").rstrip()


def told(archive: Iterable[Transaction | Ddl]) -> list[Told]:
    return [
        (item.commit_ts, statement(item.query) if isinstance(item, Ddl) else list(item.rows))
        for item in archive
    ]


def of_pumps(scenario: str, directory: Path) -> list[str]:
    return [pump.uri for pump in corpus.pumps(scenario, directory)]


def history(scenario: str) -> str:
    return str(recorded.ROOT / scenario / "ddl_jobs.jsonl.gz")


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_a_file_archive_has_the_rows_of_the_stream(scenario: str, tmp_path: Path) -> None:
    made = corpus.our_archive(items(scenario), tmp_path / "archive")
    found, expected = told(drainer.open_archive(made.uri)), live(scenario)
    differ = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
    for (found_ts, rows), (ts, others) in differ:
        assert found_ts == ts
        for row, other in zip(rows, others, strict=True):
            assert isinstance(row, drainer.Row)
            assert isinstance(other, drainer.Row)
            assert row.kind == other.kind == "delete"
            assert row.before.items() < other.before.items()
    assert len(differ) == FEWER_COLUMNS.get(scenario, 0)


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_a_relay_log_has_the_rows_of_the_stream(scenario: str, tmp_path: Path) -> None:
    made = corpus.our_relay(items(scenario), tmp_path / "relay", 32 << 10)
    assert told(drainer.open_archive(made.uri)) == live(scenario)


@pytest.mark.parametrize("scenario", [*recorded.VARIED, "multi-pump"])
def test_value_logs_of_all_pumps_have_the_rows_of_the_stream(scenario: str, tmp_path: Path) -> None:
    archive = drainer.open_archive(of_pumps(scenario, tmp_path), ddl_history=history(scenario))
    assert archive.kind == "pump"
    assert told(archive) == live(scenario)


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("basic") / "archive"
    return corpus.our_archive(items("basic"), directory, 8 << 10).uri


def test_both_ends_of_a_range_are_included(basic: str) -> None:
    everything = told(drainer.open_archive(basic))
    first, last = everything[3][0], everything[-4][0]
    wanted = everything[3:-3]
    assert told(drainer.open_archive(basic, start=first, stop=last)) == wanted
    assert told(drainer.open_archive(basic).read(start=str(first), stop=last)) == wanted
    assert told(drainer.open_archive(basic, start="oldest")) == everything


def test_a_time_means_its_millisecond(basic: str) -> None:
    everything = list(drainer.open_archive(basic))
    at = everything[5].time
    found = list(drainer.open_archive(basic, start=at, stop=at + timedelta(microseconds=999)))
    assert [one.commit_ts for one in found] == [one.commit_ts for one in everything if one.time == at]
    with pytest.raises(ConfigError, match="has no time zone"):
        drainer.open_archive(basic, start=at.replace(tzinfo=None))


def test_tables_are_chosen_by_patterns_and_their_ddl_comes_with_them(basic: str) -> None:
    archive = drainer.open_archive(basic, tables="shop.customer")
    found = list(archive)
    rows = [row for item in found if isinstance(item, Transaction) for row in item.rows]
    assert {str(row.table) for row in rows} == {"shop.customer"}
    assert any(isinstance(item, Ddl) and "customer" in item.query for item in found)
    assert told(drainer.open_archive(basic).read(tables=["shop.customer"])) == told(archive)
    assert {str(table) for table in archive.tables} > {"shop.customer"}


@pytest.mark.parametrize("kind", ["archive", "relay", "pump"])
def test_what_ddl_alone_touches_is_not_misspelt(kind: str, tmp_path: Path) -> None:
    known = {"ddl_history": history("ddl")} if kind == "pump" else {}
    if kind == "archive":
        path = corpus.our_archive(items("ddl"), tmp_path / "made").uri
    elif kind == "relay":
        path = corpus.our_relay(items("ddl"), tmp_path / "made", 32 << 10).uri
    else:
        (path,) = of_pumps("ddl", tmp_path)
    for name in ("d1.cmt", "D1.multi", "d1.v1", "d1.seq1", "d4", "~^d1\\.rec_b"):  # none of them had a row
        found = drainer.open_archive(path, tables=name, **known)
        assert any(isinstance(item, Ddl) for item in found), name
    with pytest.raises(drainer.NoSuchTable, match=r"has no table d1\.cmd \(it has d1\."):
        drainer.open_archive(path, tables="d1.cmt,d1.cmd", **known)


def test_a_large_transaction_is_read_piece_by_piece_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = corpus.our_archive(items("basic"), tmp_path / "archive")
    expected = live("basic")
    monkeypatch.setattr(archives, "LARGE_ROWS", 2)
    archive = drainer.open_archive(made.uri)
    assert told(archive) == expected
    stream = iter(archive)
    large = next(item for item in stream if isinstance(item, Transaction) and item.large)
    rows = iter(large.rows)
    next(rows)
    with pytest.raises(StreamEnded, match="were read, or passed over"):
        iter(large.rows)
    after = [item.commit_ts for item in stream]
    assert after == [ts for ts, _ in expected if ts > large.commit_ts]


def test_a_large_record_comes_in_pieces_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from drainer.reading.archive.decode import pb_walk

    made = corpus.our_archive(items("basic"), tmp_path / "archive")
    expected = corpus.records(made)
    monkeypatch.setattr(pb_walk, "PIECE_BYTES", 100)
    pieces = corpus.records(made)
    assert len(pieces) > len(expected)
    assert told(drainer.open_archive(made.uri)) == live("basic")


def test_what_a_drainer_wrote_again_into_the_next_file_comes_once(tmp_path: Path) -> None:
    stream = [item for item in items("basic") if isinstance(item, txn.Ddl) or item.tables]
    corpus.our_archive(stream, tmp_path / "whole", 1 << 30)
    (whole,) = (path for path in (tmp_path / "whole").iterdir() if path.name.startswith("binlog-"))
    begins = [at for _, at in corpus.places(whole)]
    directory = tmp_path / "again"
    directory.mkdir()
    data = whole.read_bytes()
    (directory / "binlog-0000000000000000-20261122000000").write_bytes(data[: begins[20]])
    (directory / "binlog-0000000000000001-20261122000001").write_bytes(data[begins[10] :])
    found = [ts for ts, _ in told(drainer.open_archive(str(directory)))]
    assert found == [item.commit_ts for item in stream]
    archive = drainer.open_archive(str(directory))
    once = [row.commit_ts for row in stream if isinstance(row, txn.Transaction) for _ in range(rows_of(row))]
    assert archive.to_arrow().read_all()["_commit_ts"].to_pylist() == once
    orders = drainer.open_archive(str(tmp_path / "whole")).to_arrow(table="shop.orders").read_all()
    again = archive.to_arrow(table="shop.orders").read_all()
    assert again["_commit_ts"] == orders["_commit_ts"]


# -- bad input -----------------------------------------------------------------------------------------


def flipped(directory: Path, number: int) -> str:
    """Damage in the middle of a file; its name."""
    path = sorted(path for path in directory.iterdir() if path.name.startswith("binlog-"))[number]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    return path.name


def test_damage_names_file_and_offset_or_is_reported(tmp_path: Path) -> None:
    made = corpus.our_archive(items("basic"), tmp_path / "archive", 8 << 10)
    name = flipped(tmp_path / "archive", 1)
    with pytest.raises(Corruption, match=rf"{name}.* (at )?offset \d+") as error:
        told(drainer.open_archive(made.uri))
    assert error.value.exit_code == 6
    reported = drainer.open_archive(made.uri, damage="report")
    everything, found = live("basic"), told(reported)
    assert len(everything) > len(found) > len(everything) // 2
    assert [one for one in everything if one in found] == found
    shutil.rmtree(tmp_path / "archive" / ".index", ignore_errors=True)
    assert sum(bool(one.problem) for one in drainer.open_archive(made.uri).files()) <= 1


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    made = corpus.our_archive(items("basic"), tmp_path / "archive", 2 << 10)
    sorted(path for path in (tmp_path / "archive").iterdir() if path.name.startswith("binlog-"))[1].unlink()
    with pytest.raises(Corruption, match="index 1 is missing between"):
        told(drainer.open_archive(made.uri))


def test_a_torn_end_is_no_damage_in_the_newest_file(tmp_path: Path) -> None:
    corpus.our_archive(items("basic"), tmp_path / "archive", 1 << 30)
    (path,) = (path for path in (tmp_path / "archive").iterdir() if path.name.startswith("binlog-"))
    shutil.rmtree(next(path for path in (tmp_path / "archive").iterdir() if path.is_dir()))
    path.write_bytes(path.read_bytes()[:-5])
    found = [item.commit_ts for item in drainer.open_archive(tmp_path / "archive")]
    assert found == [ts for ts, _ in live("basic")][:-1]


def test_a_value_log_without_its_history_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no definitions of tables") as error:
        told(drainer.open_archive(of_pumps("basic", tmp_path)))
    assert "ddl-history" in error.value.hint


Refused = Callable[[str], object]
REFUSED: dict[str, Refused] = {
    "there is no directory /nowhere/at/all": lambda uri: drainer.open_archive("/nowhere/at/all"),
    "no archive is named": lambda uri: drainer.open_archive([]),
    "is of kind pb, not relay": lambda uri: drainer.open_archive(uri, "relay"),
    "'parquet' is no kind of archive": lambda uri: drainer.open_archive(uri, "parquet"),
    "has no file of an archive": lambda uri: drainer.open_archive(uri, "pump"),
    "has no table shop.nope": lambda uri: drainer.open_archive(uri, tables=["shop.customer", "shop.nope"]),
    "before it begins": lambda uri: drainer.open_archive(uri, start="2030-01-01", stop="2029-01-01"),
    "neither a commit_ts nor a time": lambda uri: drainer.open_archive(uri, stop="yesterday"),
    "damage='skip'": lambda uri: drainer.open_archive(uri, damage="skip"),
    "only|several are given": lambda uri: drainer.open_archive([uri, uri]),
    "has no table shop.missing": lambda uri: drainer.open_archive(uri).to_arrow(table="shop.missing"),
    "has no column 'nothing'": lambda uri: drainer.open_archive(uri).to_arrow(columns=["nothing"]),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_is_one_line_with_what_to_do(text: str, basic: str) -> None:
    with pytest.raises(BinlogError, match=text) as error:
        REFUSED[text](basic)
    assert error.value.hint
    assert error.value.exit_code == 1
    assert "\n" not in str(error.value)


def test_a_start_before_the_archive_says_where_it_begins(basic: str) -> None:
    archive = drainer.open_archive(basic)
    with pytest.raises(BinlogsLost, match="after the start 1 ") as error:
        archive.read(start=1)
    assert (error.value.lowest, error.value.exit_code) == (archive.first_ts, 6)
    assert next(archive.read(start=error.value.lowest)).commit_ts == archive.first_ts


def test_an_empty_directory_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no file of an archive"):
        drainer.open_archive(tmp_path)


def test_what_it_is_can_be_asked(basic: str) -> None:
    archive = drainer.open_archive(Path(basic))
    assert (archive.kind, archive.first_ts) == ("pb", live("basic")[0][0])
    assert repr(archive) == f"<pb archive {basic}>"
    assert sum(one.transactions or 0 for one in archive.files()) > 0
    assert next(iter(archive)).time < datetime.now(UTC)
    assert Place(basic).shown == basic
