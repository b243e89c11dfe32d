"""An archive as frames, and asked by SQL: the same changes as its rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import drainer
from drainer.reading.archive.archive import Archive
from tests.cases import case
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support.relay_world import items
from tests.missing import without
from tidb_binlog.errors import ConfigError, Corruption


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    directory = tmp_path_factory.mktemp("basic") / "archive"
    corpus.our_archive(items("basic"), directory, 8 << 10)
    return drainer.open_archive(directory)


def kinds(archive: Archive, table: str = "") -> Counter[str]:
    return Counter(
        row.kind
        for item in archive
        if isinstance(item, drainer.Transaction)
        for row in item.rows
        if table in ("", str(row.table))
    )


def test_frames_have_the_rows_of_the_archive(archive: Archive) -> None:
    wanted = kinds(archive, "shop.orders")
    pandas = archive.to_pandas("shop.orders")
    assert pandas["_change_type"].value_counts().to_dict() == wanted
    ids = pandas.loc[pandas["_change_type"] == "insert", "after.id"]
    assert str(ids.dtype) == "int64[pyarrow]"
    polars = archive.to_polars("shop.orders", columns=["_change_type", "after.id"])
    assert polars.columns == ["_change_type", "after"]
    inserted = polars.filter(polars["_change_type"] == "insert")["after"].struct.field("id").to_list()
    assert inserted == list(ids)
    assert len(archive.to_pandas()) == len(archive.to_polars()) == kinds(archive).total()


def test_sql_reads_what_it_names(archive: Archive) -> None:
    wanted = kinds(archive, "shop.orders")
    found = archive.sql('SELECT _change_type, count(*) FROM "shop".Orders GROUP BY 1').fetchall()
    assert dict(found) == wanted
    (both,) = archive.sql(
        """WITH o AS (SELECT _seq, _commit_ts FROM shop.orders)
        SELECT count(*) FROM o JOIN changes c USING (_commit_ts, _seq)
        WHERE EXISTS (SELECT 1 FROM shop.orders s WHERE s._seq = o._seq AND s._commit_ts = o._commit_ts)"""
    ).fetchall()
    assert both == (wanted.total(),), "each is read once, and may be named twice"
    assert archive.sql("SELECT 1").fetchall() == [(1,)]


def test_a_range(archive: Archive) -> None:
    stamps = [item.commit_ts for item in archive if isinstance(item, drainer.Transaction)]
    middle = stamps[len(stamps) // 2]
    (count,) = archive.sql("SELECT max(_commit_ts) FROM changes", stop=middle).fetchall()
    assert count == (middle,)
    assert archive.to_pandas(start=middle)["_commit_ts"].min() == middle


def test_what_cannot_be_asked_is_said(archive: Archive) -> None:
    for query, text in {
        "SELEC 1": "the query cannot be answered: syntax error",
        "DROP TABLE changes": "the query cannot be answered: Only SELECT",
        "SELECT nothing FROM changes": "the query cannot be answered: Binder Error",
        "SELECT * FROM orders": "the query cannot be answered: Catalog Error.*orders",
        "SELECT * FROM a.b.c": "the query cannot be answered: ",
        "SELECT * FROM shop.ordres": "no table shop.ordres",
    }.items():
        with case(query), pytest.raises((ConfigError, drainer.NoSuchTable), match=text):
            archive.sql(query)


def test_damage_is_told_as_elsewhere(tmp_path: Path) -> None:
    corpus.our_archive(items("basic"), tmp_path / "archive", 8 << 10)
    path = min(path for path in (tmp_path / "archive").iterdir() if path.name.startswith("binlog-"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    archive = drainer.open_archive(tmp_path / "archive")
    for read in (archive.to_pandas, archive.to_polars, lambda: archive.sql("SELECT * FROM changes")):
        with pytest.raises(Corruption, match=path.name):
            read()


def test_a_missing_package_names_its_extra(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pandas", "polars", "duckdb")
    calls = {
        "pandas": archive.to_pandas,
        "polars": archive.to_polars,
        "duckdb": lambda: archive.sql("SELECT 1"),
    }
    for name, call in calls.items():
        with case(name), pytest.raises(ConfigError) as error:
            call()
        assert error.value.hint == f"pip install 'tidb-binlog[{name}]'"
