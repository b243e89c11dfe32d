"""Definitions: found by name, time and columns; guessed where there are none; the same in every process."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from drainer.places.place import Place
from drainer.reading.archive.decode import ddl_history
from drainer.reading.archive.decode.definitions import Definitions, number_of
from drainer.txn import TableVersion
from tests.drainer.reading.archive.support import corpus
from tests.drainer.reading.archive.support.corpus import Values
from tests.drainer.support import recorded
from tests.drainer.support.apply_life import column
from tests.drainer.support.relay_world import items
from tidb_binlog.errors import ConfigError
from tidb_binlog.table_info import LONG, LONGLONG, VARCHAR, TableInfo

A, B, C = column(1, "a", LONG), column(2, "b", VARCHAR), column(3, "c", VARCHAR)


def version(*columns: object, number: int = 1, name: str = "t") -> TableVersion:
    placed = tuple(replace(one, offset=place) for place, one in enumerate(columns))  # type: ignore[type-var]
    return TableVersion(TableInfo(7, name, placed), "d", name, number)  # type: ignore[arg-type]


def test_equal_definitions_are_one_object_with_one_number_everywhere() -> None:
    known = Definitions()
    first = known.add(10, "d", "t", version(A, B))
    assert known.add(20, "d", "t", version(A, B)) is first
    elsewhere: Definitions = pickle.loads(pickle.dumps(known))
    number = known.number_of(first)
    assert elsewhere.number_of(version(A, B)) == number == number_of(version(A, B))
    assert 0 < number < 1 << 63
    assert elsewhere.version(number).info == first.info
    with pytest.raises(ConfigError, match="no definition with the number 5"):
        known.version(5)


def test_the_last_definition_before_a_row_that_has_its_columns_counts() -> None:
    known = Definitions()
    one, two, three = (
        known.add(10, "d", "t", version(A, B, number=1)),
        known.add(20, "d", "t", version(A, B, C, number=2)),
        known.add(30, "d", "t", version(A, B, number=3)),
    )
    assert known.find("d", "t", 15, ["a", "b"]) is one
    assert known.find("d", "t", 25, ["a", "b", "c"]) is two
    assert known.find("d", "t", 25, ["a", "b"]) is one, "written before the ALTER, committed after it"
    assert known.find("d", "t", 30, ["a", "b"]) is three
    assert known.find("d", "t", 12, ["c", "b", "a"]) is two
    assert known.find("d", "t", 30, ["a", "x"]) is None
    assert known.find("d", "u", 30, ["a"]) is None
    assert known.find("d", "t", 30, ["a", "b"], lambda found: found is not three) is one
    assert [known.valid(ts) for ts in (5, 10, 29)] == [(0, 9), (10, 19), (20, 29)]


def test_routed_tables_are_known_under_their_archived_name_without_columns_left_out() -> None:
    known = Definitions()
    routed = replace(version(A, B, C), target=("elsewhere", "t2"), left_out=frozenset({2}))
    found = known.add(1, "elsewhere", "t2", routed)
    assert (found.schema, found.name, found.target) == ("elsewhere", "t2", None)
    assert [each.name for each in found.info.columns] == ["a", "c"]
    assert known.find("elsewhere", "t2", 1, ["a", "c"]) is found


@pytest.mark.parametrize("kind", ["events", "relay"])
def test_archives_of_go_drainers_are_read_by_guessing(kind: str, tmp_path: Path) -> None:
    """Keys and elements are not known, values are."""
    location = corpus.unpacked("types", kind, tmp_path)
    got = list(Values().of_records(corpus.records(location)))
    wanted = list(Values().of_items(items("types")))
    assert [(a.commit_ts, a.name, a.kind) for a in got] == [(b.commit_ts, b.name, b.kind) for b in wanted]
    different = {
        column
        for a, b in zip(got, wanted, strict=True)
        for mine, theirs in ((a.before, b.before), (a.after, b.after))
        for column in theirs or ()
        if mine is not None and theirs is not None and plain(mine[column]) != plain(theirs[column])
    }
    assert not different


def plain(value: object) -> object:
    """A value without what a guess does not know: digits, elements."""
    number = getattr(value, "number", None)
    if number is not None:
        return number
    if isinstance(value, str) and ":" in value and "." in value:
        return value.rstrip("0").rstrip(".")
    try:
        return Decimal(value) if isinstance(value, str) else value
    except ArithmeticError:
        return value


def test_the_history_is_read_from_lines_with_or_without_base64(tmp_path: Path) -> None:
    jobs = recorded.jobs("basic")
    (tmp_path / "plain.jsonl").write_bytes(b"\n".join(json.dumps(json.loads(job)).encode() for job in jobs))
    raw = "\n".join(json.dumps({"id": 1, "raw": base64.b64encode(job).decode()}) for job in jobs)
    (tmp_path / "ddl_jobs.jsonl.gz").write_bytes(gzip.compress(raw.encode()))
    location = Place(str(tmp_path))
    assert ddl_history.load(location) == jobs
    for name in ("plain.jsonl", str(tmp_path / "plain.jsonl")):
        assert [json.loads(job) for job in ddl_history.load(location, name)] == list(map(json.loads, jobs))
    assert ddl_history.load(Place(str(tmp_path.parent))) == []
    with pytest.raises(ConfigError, match=r"no file nothing\.jsonl"):
        ddl_history.load(location, "nothing.jsonl")
    (tmp_path / "bad.jsonl").write_text("not a job\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        ddl_history.load(location, "bad.jsonl")


def test_every_version_of_a_table_in_the_history_is_known() -> None:
    known = corpus.of_history("ddl")
    used = {
        known.of_upstream(events.table)
        for item in items("ddl")
        for events in getattr(item, "tables", ())
        if not isinstance(events, tuple)
    }
    assert used <= {one.version for one in known}
    assert len(used) > 20
    assert LONGLONG in {each.type.tp for one in used for each in one.info.columns}
