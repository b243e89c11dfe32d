"""Slices of our own archives: what a selection leaves out is not read, what is damaged is said."""

from __future__ import annotations

import functools
import gzip
import pickle
from pathlib import Path

import pytest

from drainer.config.relay_format import FORMATS
from drainer.places.place import Place
from drainer.reading.archive.decode import coverage, definitions, reading
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.records import Changes, Record
from drainer.reading.archive.files.segments import Slice, Survey, survey
from drainer.reading.archive.files.selection import Selection
from drainer.txn import INSERT, Ddl, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.tables import kind, table
from tests.drainer.reading.archive.support import corpus
from tests.drainer.reading.archive.support.corpus import BETWEEN, LACKING_COLUMNS, WRONG_NAMES, Change, Values
from tests.drainer.support import recorded
from tests.drainer.support.payloads import sent
from tests.drainer.support.relay_world import items
from tidb_binlog.compression import zstd
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.record import encode_file
from tidb_binlog.rowcodec.encoder import RowEncoder

SCENARIO = "keys"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return corpus.our_archive(items(SCENARIO), tmp_path_factory.mktemp("archive"), 16 << 10)


@pytest.fixture
def copy(tmp_path: Path) -> Place:
    """One that a test may damage."""
    return corpus.our_archive(items(SCENARIO), tmp_path / "a", 16 << 10)


@pytest.fixture(scope="module")
def known(whole: Place) -> Definitions:
    return definitions.of_archive(whole, survey(whole))


def changes(found: list[Record]) -> list[Change]:
    return list(Values().of_records(found))


def expected() -> list[Change]:
    return list(Values().of_items(items(SCENARIO)))


def files(location: Place) -> list[Path]:
    return sorted(path for path in Path(location.uri).iterdir() if path.is_file())


def test_an_archive_with_its_definitions_reads_to_what_was_written(whole: Place) -> None:
    found = corpus.records(whole)
    assert changes(found) == expected()
    ddls = [item for item in items(SCENARIO) if isinstance(item, Ddl)]
    assert [(ddl.commit_ts, ddl.schema) for ddl in corpus.ddls(found)] == [
        (ddl.commit_ts, "" if ddl.action == 1 else ddl.schema) for ddl in ddls
    ]
    assert {ddl.tables for ddl in corpus.ddls(found)} == {ddl.tables for ddl in ddls}
    assert all(version.info.id for _, _, _, version in definitions.of_archive(whole, survey(whole)))


def test_small_slices_read_to_the_same_wherever_they_are_read(whole: Place, known: Definitions) -> None:
    parts: list[Slice] = pickle.loads(pickle.dumps(survey(whole).plan(Selection(), 1000)))
    assert len(parts) > 3 * len(survey(whole).segments)
    elsewhere = pickle.loads(pickle.dumps(known))
    found = [record for part in parts for record in reading.read(whole, part, Selection(), elsewhere)]
    assert changes(found) == expected()
    numbers = [
        {store.number_of(row[0]) for record in found if isinstance(record, Changes) for row in record.rows}
        for store in (known, elsewhere)
    ]
    assert numbers[0] == numbers[1]
    assert all(known.version(number).info == elsewhere.version(number).info for number in numbers[0])


@pytest.mark.parametrize("target_bytes", [500, 5000, 1 << 20])
def test_a_range_is_read_without_the_rest(whole: Place, known: Definitions, target_bytes: int) -> None:
    stamps = sorted({change.commit_ts for change in expected()})
    everything = survey(whole).plan(Selection(), target_bytes)
    for start, stop in ((stamps[20], stamps[40]), (stamps[-3], 0), (0, stamps[2]), (stamps[50], stamps[50])):
        selection = Selection(start, stop)
        found = corpus.records(whole, known, selection, target_bytes=target_bytes)
        assert changes(found) == [one for one in expected() if selection.wants_ts(one.commit_ts)]
        read = sum(size(whole, part) for part in survey(whole).plan(selection, target_bytes))
        assert read < sum(size(whole, part) for part in everything) / 2


def size(location: Place, part: Slice) -> int:
    return (part.stop or part.size) - part.start


def test_tables_and_kinds_are_selected_and_rows_keep_their_places(whole: Place, known: Definitions) -> None:
    (schema, table) = expected()[0].name
    selection = Selection.of(tables=f"{schema}.{table}", ops="update,delete")
    assert changes(corpus.records(whole, known, selection)) == [
        one for one in expected() if one.name == (schema, table) and one.kind
    ]
    nothing = Selection.of(tables="no.such")
    assert changes(corpus.records(whole, known, nothing)) == []


def test_files_are_skipped_whose_index_has_neither_ddl_nor_a_wanted_row(tmp_path: Path) -> None:
    stream = [item for item in items("multi-pump") if not isinstance(item, Ddl)]
    location = corpus.our_archive(stream, tmp_path, 16 << 10)
    assert len(survey(location).segments) > 2
    assert survey(location).plan(Selection.of(tables="no.such")) == []


@pytest.mark.parametrize("suffix", ["zst", "gz"])
def test_compressed_segments_read_like_others(copy: Place, suffix: str) -> None:
    for path in files(copy)[:-1]:
        data = path.read_bytes()
        packed = gzip.compress(data) if suffix == "gz" else zstd.compressor(3)(data)
        path.with_name(f"{path.name}-77.{suffix}").write_bytes(packed)
        path.unlink()
    found = corpus.records(copy)
    assert changes(found) == expected()
    seen = survey(copy)
    assert not seen.problems
    verified = [coverage.cover(copy, part, verify=True) for part in coverage.slices(seen)]
    assert sum(one.inserts + one.updates + one.deletes for one in verified) == len(expected())


def test_heads_count_what_reading_gives(whole: Place) -> None:
    parts = survey(whole).plan(Selection(), 5000)
    heads = [head for part in parts for head in reading.heads(whole, part)]
    assert sum(head.rows for head in heads) == len(expected())
    assert sum(head.is_ddl for head in heads) == len(corpus.ddls(corpus.records(whole)))


# -- damage ----------------------------------------------------------------------------------------------


def test_a_torn_end_of_the_newest_file_is_no_damage(copy: Place) -> None:
    last = files(copy)[-1]
    record = encode_file(b"\x08\x00\x10" + bytes(200))
    whole_bytes = last.stat().st_size
    for cut in (5, 12, 100, len(record) - 1):
        with last.open("ab") as file:
            file.truncate(whole_bytes)
            file.write(record[:cut])
        assert changes(corpus.records(copy)) == expected()
        found = coverage.cover(copy, coverage.slices(survey(copy))[-1], verify=True)
        assert (found.torn_bytes, found.problem) == (cut, None)


def test_a_torn_end_of_another_file_is_damage(copy: Place) -> None:
    first = files(copy)[0]
    with first.open("ab") as file:
        file.write(b"\x04\x05\x1b\x1c")
    with pytest.raises(Corruption, match=rf"{first.name}: offset {first.stat().st_size - 4}: "):
        corpus.records(copy)


def test_damaged_bytes_are_an_error_with_their_place_or_left_out(copy: Place) -> None:
    first = files(copy)[0]
    places = corpus.places(first)
    place = len(places) // 2
    commit_ts, pos = places[place]
    data = bytearray(first.read_bytes())
    data[pos + 30] ^= 1
    first.write_bytes(data)
    with pytest.raises(Corruption, match=rf"{first.name}: offset {pos}: checksum mismatch"):
        corpus.records(copy)
    left = changes(corpus.records(copy, damage="report"))
    assert left == [one for one in expected() if one.commit_ts != commit_ts]
    seen = survey(copy)
    found = coverage.cover(copy, coverage.slices(seen)[0], seen.segments[0], verify=True)
    assert (found.problem_pos, found.bytes_ok) == (pos, first.stat().st_size - (places[place + 1][1] - pos))
    assert found.problem is not None
    assert found.problem.endswith(f"{first.name}: offset {pos}: checksum mismatch")
    with pytest.raises(ConfigError, match="no way to treat damage"):
        corpus.records(copy, damage="ignore")


@pytest.mark.parametrize("offset", [0, 20])
def test_a_first_record_that_is_damaged_tells_no_kind_and_ends_no_survey(copy: Place, offset: int) -> None:
    first = files(copy)[0]
    data = bytearray(first.read_bytes())
    data[offset] ^= 1
    first.write_bytes(data)
    with pytest.raises(Corruption, match=f"{first.name}: offset 0: "):
        corpus.records(copy)
    assert survey(copy).kind == "pb"
    assert changes(corpus.records(copy, damage="report"))
    assert coverage.cover(copy, coverage.slices(survey(copy))[0], verify=True).problem_pos == 0


@pytest.mark.parametrize("part", [0.01, 0.5])
def test_a_compressed_file_that_is_cut_off_is_damage(copy: Place, part: float) -> None:
    """A stream of zstd's would just end; of an unknown file nothing can be read at all."""
    first = files(copy)[0]
    packed = zstd.compressor(3)(first.read_bytes())
    name = f"{first.name}-77.zst"
    first.with_name(name).write_bytes(packed[: int(len(packed) * part)])
    first.unlink()
    for index in (Path(copy.uri) / "index").iterdir():
        index.unlink()
    with pytest.raises(Corruption, match=f"{name} cannot be unpacked"):
        corpus.records(copy)
    assert changes(corpus.records(copy, damage="report"))
    found = coverage.cover(copy, coverage.slices(survey(copy))[0])
    assert found.problem is not None
    assert "cannot be unpacked" in found.problem


def test_a_missing_file_is_an_error_where_the_range_goes_across(copy: Place) -> None:
    gone = files(copy)[1]
    gone.unlink()
    seen = survey(copy)
    assert [(one.kind, one.segment) for one in seen.problems] == [("missing", files(copy)[1].name)]
    with pytest.raises(Corruption, match="index 1 is missing between"):
        corpus.records(copy)
    after = seen.segments[1].first_ts
    assert after is not None
    later = [one for one in expected() if one.commit_ts >= after]
    assert changes(corpus.records(copy, selection=Selection(after))) == later
    before = seen.segments[0].last_ts
    assert before is not None
    assert changes(corpus.records(copy, selection=Selection(0, before)))
    rest = changes(corpus.records(copy, damage="report"))
    assert rest == [one for one in expected() if one.commit_ts <= before or one.commit_ts >= after]


def test_a_file_there_twice_or_shorter_than_its_index_is_an_error(copy: Place) -> None:
    first, second = files(copy)[:2]
    twice = second.with_name(second.name.replace("20261122000000", "20261122000001"))
    twice.write_bytes(second.read_bytes())
    assert [one.kind for one in survey(copy).problems] == ["doubled"]
    with pytest.raises(Corruption, match="have the same index"):
        corpus.records(copy)
    twice.unlink()
    places = corpus.places(first)
    first.write_bytes(first.read_bytes()[: places[-1][1]])
    with pytest.raises(Corruption, match=f"{first.name} has lost"):
        corpus.records(copy)


def test_what_a_drainer_wrote_again_after_a_start_counts_once(copy: Place) -> None:
    """A Go drainer goes on from its checkpoint, after which it had written already."""
    last = files(copy)[-1]
    data, places = last.read_bytes(), corpus.places(last)
    again = places[len(places) // 3][1]
    last.write_bytes(data + data[again:])
    (Path(copy.uri) / "index" / f"{last.name}.json").unlink()
    assert changes(corpus.records(copy)) == expected()
    # A record in a wrong place is no second one.
    (_, a), (_, b) = places[-2:]
    last.write_bytes(data[:a] + data[b:] + data[a:b])
    assert sorted(changes(corpus.records(copy)), key=lambda one: one[:2]) == expected()


def test_coverage_comes_from_the_index_where_it_covers_the_file(copy: Place) -> None:
    seen = survey(copy)
    by_index = [
        coverage.cover(copy, part, segment)
        for part, segment in zip(coverage.slices(seen), seen.segments, strict=True)
    ]
    by_records = [coverage.cover(copy, part, verify=True) for part in coverage.slices(seen)]
    assert by_index == by_records
    for path in files(copy):
        path.write_bytes(bytes(path.stat().st_size))
    assert [coverage.cover(copy, part, seen.segments[0]) for part in coverage.slices(seen)[:1]] == by_index[
        :1
    ]


def test_both_formats_of_a_relay_log_are_counted_alike(tmp_path: Path) -> None:
    """Of binlogs as pumps sent them, the rows that went downstream."""
    counted = []
    for form in FORMATS:
        seen = survey(corpus.our_relay(items("txn"), tmp_path / form, 32 << 10, form))
        covers = [coverage.cover(seen.location, part) for part in coverage.slices(seen)]
        assert not [one.problem for one in covers if one.problem]
        heads = [head for part in coverage.slices(seen) for head in reading.heads(seen.location, part)]
        counted.append(
            [
                *(
                    sum(getattr(one, name) for one in covers)
                    for name in ("transactions", "ddl", "inserts", "updates", "deletes")
                ),
                [(head.commit_ts, head.is_ddl, head.rows) for head in heads],
            ]
        )
    assert counted[0] == counted[1]
    assert all(counted[0])


def test_behind_damage_rows_of_a_relay_log_are_not_read_by_older_definitions(tmp_path: Path) -> None:
    """A Drainer that was started again numbers them anew; with the first of its records that is lost."""
    columns = [("id", kind("bigint", not_null=True)), ("a", kind("varchar")), ("b", kind("varchar"))]
    for life, shown in enumerate((columns[:2], columns)):
        version = TableVersion(table(*shown, handle="rowid"), "shop", "t", life)
        row = RowEncoder(version.info).insert((1, *("text" for _ in shown[1:])), 1)
        stream = [
            sent(Transaction(ts - 1, ts, (TableEvents(version, [INSERT], [row], 0),), 9))
            for ts in (10 + 10 * life, 15 + 10 * life)
        ]
        log = corpus.our_relay(stream, tmp_path, 1 << 20)
    (path,) = files(log)
    data, (part,) = bytearray(path.read_bytes()), coverage.slices(survey(log))
    third = [head.pos for head in reading.heads(log, part)][2]
    assert [one.commit_ts for one in corpus.records(log)] == [10, 15, 20, 25]
    data[third + 20] ^= 1
    path.write_bytes(data)
    assert [one.commit_ts for one in corpus.records(log, damage="report")] == [10, 15]
    found = coverage.cover(log, part)
    assert (found.problem_pos, found.transactions, found.inserts) == (third, 3, 2)


def test_kinds_are_told_apart_and_an_empty_directory_is_no_error(tmp_path: Path, whole: Place) -> None:
    empty = Place(str(tmp_path))
    assert survey(empty) == Survey(empty, "pb")
    assert survey(empty).plan(Selection()) == []
    assert survey(whole).kind == "pb"
    relay = corpus.our_relay(items("basic"), tmp_path / "relay", 1 << 20)
    assert survey(relay).kind == "relay"
    (pump,) = corpus.pumps("basic", tmp_path)
    assert survey(pump).kind == "pump"
    with pytest.raises(ConfigError, match="there is no directory"):
        survey(Place(str(tmp_path / "nothing")))
    with pytest.raises(ConfigError, match="no kind of archive"):
        survey(empty, "parquet")


# -- every recorded scenario: what TiDB wrote, from each kind of archive --------------------------------


KINDS = ("insert", "update", "delete")
TWO_FORMS = {"ddl": 2}


@functools.cache
def written(scenario: str) -> list[Change]:
    return list(Values().of_items(items(scenario)))


def assert_same_but_for_faults(scenario: str, got: list[Change], wanted: list[Change]) -> None:
    differ = [(a, b) for a, b in zip(got, wanted, strict=True) if a != b]
    renamed = [(a, b) for a, b in differ if a._replace(name=b.name) == b]
    lacking = [(a, b) for a, b in differ if set(columns(a)) < set(columns(b))]
    assert len(renamed) == WRONG_NAMES.get(scenario, 0)
    assert len(lacking) == LACKING_COLUMNS.get(scenario, 0)
    others = len(differ) - len(renamed) - len(lacking)
    assert others == BETWEEN.get(scenario, 0)


def columns(change: Change) -> list[str]:
    return list(change.before or change.after or ())


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_pump_data_holds_the_transactions_that_the_pump_served(scenario: str, tmp_path: Path) -> None:
    known = corpus.of_history(scenario)
    found = [
        record for location in corpus.pumps(scenario, tmp_path) for record in corpus.records(location, known)
    ]
    found.sort(key=lambda record: record.commit_ts if isinstance(record, Changes) else record.ddl.commit_ts)
    assert list(Values().of_records(found)) == written(scenario)
    served = [item for item in items(scenario) if isinstance(item, Ddl)]
    assert [(ddl.commit_ts, ddl.query, ddl.tables) for ddl in corpus.ddls(found)] == [
        (ddl.commit_ts, ddl.query, ddl.tables) for ddl in served
    ]
    starts = {item.commit_ts: item.start_ts for item in items(scenario) if isinstance(item, Transaction)}
    assert all(record.start_ts == starts[record.commit_ts] for record in found if isinstance(record, Changes))


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_go_relay_holds_the_same_rows(scenario: str, tmp_path: Path) -> None:
    location, known = corpus.unpacked(scenario, "relay", tmp_path), corpus.of_history(scenario)
    (name,) = [entry.name for entry in location.list()]
    if scenario in TWO_FORMS:
        with pytest.raises(Corruption, match=rf"{name}: offset \d+: .* has 6 of 7 columns"):
            corpus.records(location, known)
    found = corpus.records(location, known, damage="report")
    got = list(Values().of_records(found))
    seen = {line["commit_ts"] for line in recorded.events(scenario)}
    wanted = [change for change in written(scenario) if change.commit_ts in seen]
    lost = {change.commit_ts for change in wanted} - {change.commit_ts for change in got}
    assert len(lost) == TWO_FORMS.get(scenario, 0)
    wanted = [change for change in wanted if change.commit_ts not in lost]
    assert_same_but_for_faults(scenario, got, wanted)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_our_relay_holds_the_same_rows(scenario: str, form: str, tmp_path: Path) -> None:
    found = corpus.records(corpus.our_relay(items(scenario), tmp_path, 32 << 10, form))
    assert list(Values().of_records(found)) == written(scenario)
    ddls = [item for item in items(scenario) if isinstance(item, Ddl)]
    assert [(ddl.commit_ts, ddl.query, ddl.job) for ddl in corpus.ddls(found)] == [
        (ddl.commit_ts, ddl.query, ddl.job) for ddl in ddls
    ]


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_go_archive_holds_what_its_decoded_output_says(scenario: str, tmp_path: Path) -> None:
    found = corpus.records(corpus.unpacked(scenario, "events", tmp_path / "e"), corpus.of_history(scenario))
    rows = [
        (record.commit_ts, *row[0].downstream, KINDS[row[1]])
        for record in found
        if isinstance(record, Changes)
        for row in record.rows
    ]
    assert rows == [
        (line["commit_ts"], event["schema"], event["table"], event["tp"])
        for line in recorded.events(scenario)
        for event in line.get("events", ())
    ]
    got, seen = list(Values().of_records(found)), {row[0] for row in rows}
    wanted = [change for change in written(scenario) if change.commit_ts in seen]
    assert_same_but_for_faults(scenario, got, wanted)
    assert [ddl.commit_ts for ddl in corpus.ddls(found)] == [
        line["commit_ts"] for line in recorded.events(scenario) if "ddl" in line
    ]
