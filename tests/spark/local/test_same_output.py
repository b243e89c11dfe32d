"""What commands print without Spark is what they print with it, byte for byte: every view, every type, DDL.

Both read by what `tests/drainer/reading/archive/test_archive.py` holds against the translator over every
recorded scenario.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drainer.reading.archive.archive_source import ArchiveSource
from drainer.spark import session as sessions
from drainer.spark.program import run
from drainer.txn import Ddl
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items

Both = Callable[..., tuple[str, str]]
SCENARIOS = ("ddl", "types")
VIEWS = ("changes", "transactions", "ddl", "files")


@pytest.fixture
def both(spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Both:
    """What a command prints here, and what Spark makes it print. Codes are equal."""

    def no_session(*_: object) -> SparkSession:
        raise AssertionError("a session is asked for")

    def of(*arguments: str) -> tuple[str, str]:
        with monkeypatch.context() as patch:
            patch.setattr(sessions, "session", no_session)
            code = run(list(arguments))
        here = capsys.readouterr().out
        assert run([*arguments, "--master", "local[2]"]) == code
        return here, capsys.readouterr().out

    return of


@pytest.fixture(scope="module", params=SCENARIOS)
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp(request.param) / "archive"
    return corpus.our_archive(items(request.param), directory, 128 << 10).uri


@pytest.mark.parametrize("view", VIEWS)
def test_views(both: Both, archive: str, view: str) -> None:
    here, there = both("read", f"--archive={archive}", "--view", view, "--limit=0", "--output=json")
    assert here == there
    assert len(here.splitlines()) > (view == "ddl")


def test_stats(both: Both, archive: str) -> None:
    here, there = both("stats", f"--archive={archive}", "--output=json")
    assert here == there
    assert json.loads(here)["transactions"][0]["transactions"] > 0


def test_typed_columns_and_histories(both: Both, archive: str) -> None:
    source = ArchiveSource({"path": archive})
    tables = dict.fromkeys(f"{one.schema}.{one.table}" for one in source.definitions)
    every_type = Path(archive).parent.name.startswith("types")
    for table in list(tables)[: None if every_type else 2]:
        given = (f"--archive={archive}", f"--table={table}", "--output=json")
        here, there = both("read", *given, "--limit=0")
        assert here == there, table
    here, there = both("history", f"--archive={archive}", f"--table={next(iter(tables))}", "--output=json")
    assert here == there


# -- what else commands take ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> str:
    return corpus.our_archive(items("basic"), tmp_path_factory.mktemp("b") / "archive", 8 << 10).uri


@pytest.mark.parametrize(
    "arguments",
    [
        ("read", "--count"),
        ("read", "--count", "--output=json", "--view=transactions"),
        ("read", "--columns=key,_commit_ts,_seq", "--limit=7"),
        ("read", "--columns=_table,_change_type", "--limit=7"),
        ("read", "--columns=_table,_start_ts", "--limit=0"),
        ("read", "--tables=shop.orders", "--ops=delete,update", "--output=json"),
        ("read", "--table=shop.customer", "--columns=after,_commit_ts"),
        ("read", "--limit=5"),
        ("files",),
        ("files", "--output=json"),
        ("stats", "--hottest=3"),
        ("stats", "--hottest=0", "--output=json"),
        ("history", "--table=shop.customer", "--key=id=1"),
        ("history", "--table=shop.*"),
    ],
    ids=" ".join,
)
def test_arguments(both: Both, basic: str, arguments: tuple[str, ...]) -> None:
    here, there = both(*arguments, f"--archive={basic}")
    assert here == there
    assert here


def test_value_logs_and_relay_logs(both: Both, tmp_path: Path) -> None:
    (pump,) = corpus.pumps("basic", tmp_path / "pumps")
    history = f"--ddl-history={recorded.ROOT / 'basic' / 'ddl_jobs.jsonl.gz'}"
    relay = corpus.our_relay(items("basic"), tmp_path / "relay", 32 << 10).uri
    for given in ((f"--archive={pump.uri}", history), (f"--archive={relay}",)):
        for command in (("read", "--limit=9"), ("stats",), ("files",)):
            here, there = both(*command, *given, "--output=json")
            assert here == there, command


def test_damage_that_is_passed_over(both: Both, tmp_path: Path) -> None:
    made = corpus.our_archive(items("basic"), tmp_path / "archive", 8 << 10)
    path = sorted(path for path in (tmp_path / "archive").iterdir() if path.name.startswith("binlog-"))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    here, there = both("read", f"--archive={made.uri}", "--damage=report", "--limit=0", "--output=json")
    assert here == there


def test_what_a_drainer_wrote_again_into_the_next_file_comes_once_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = [item for item in items("basic") if isinstance(item, Ddl) or item.tables]
    whole = Path(corpus.our_archive(stream, tmp_path / "whole", 1 << 30).uri)
    (file,) = (path for path in whole.iterdir() if path.name.startswith("binlog-"))
    begins = [at for _, at in corpus.places(file)]
    again = tmp_path / "again"
    again.mkdir()
    data = file.read_bytes()
    (again / "binlog-0000000000000000-20261122000000").write_bytes(data[: begins[20]])
    (again / "binlog-0000000000000001-20261122000001").write_bytes(data[begins[10] :])

    def told(*command: str) -> list[str]:
        outputs = []
        for archive in (whole, again):
            assert run([*command, f"--archive={archive}", "--output=json"]) == 0
            outputs.append(capsys.readouterr().out)
        return outputs

    for view in ("changes", "transactions"):
        (one, other) = told("read", "--view", view, "--limit=0")
        assert len(one.splitlines()) == len(other.splitlines()) > 10
    (one, other) = told("stats", "--hottest=0")
    first, second = (json.loads(output) for output in (one, other))
    assert first["changes"] == second["changes"]
    assert first["transactions"][0]["rows"] == second["transactions"][0]["rows"]
