"""Archives read without Java and pyspark: the extras `arrow` and `subscribe` are enough; errors say so."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from pyarrow import parquet

from drainer.spark.local import json_lines
from drainer.txn import Transaction
from tests.drainer.reading.archive.support import corpus
from tests.drainer.support.relay_world import items
from tests.pump.support.corpus import SAFE

WITHOUT = """
import importlib.abc, sys
missing = sys.argv.pop(1).split(",")
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""
COMMAND = """
from drainer.spark.program import main
main()
"""
NO_SPARK = "pyspark,py4j,pandas,matplotlib"
# What the extras `server` and `spark` install, and `arrow` does not.
NOT_ARROW = f"{NO_SPARK},plyvel,shtab,uvloop"
# ... and `arrow` installs, but `subscribe` does not.
NOT_SUBSCRIBE = f"{NOT_ARROW},cryptography,numpy,pyarrow,pymysql,rich,zstandard"
ROWS = """
import drainer
archive = drainer.open_archive(sys.argv[1])
print(sum(len(list(item.rows)) for item in archive if isinstance(item, drainer.Transaction)))
"""


def run(
    *arguments: str, missing: str = NOT_ARROW, program: str = COMMAND
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program, missing, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/nowhere", "LANG": "C.UTF-8"},
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("alone") / "archive"
    return corpus.our_archive(items("basic"), directory, 8 << 10).uri


@pytest.mark.parametrize(
    "arguments",
    [
        ("read", "--limit=5"),
        ("read", "--table=shop.orders"),
        ("read", "--view=ddl"),
        ("files",),
        ("stats",),
        ("history", "--table=shop.customer", "--key=id=1"),
    ],
    ids=" ".join,
)
def test_it_reads(archive: str, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, f"--archive={archive}")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 3


@pytest.mark.parametrize(
    "arguments",
    [("read", "--where=_seq > 1"), ("read", "--count", "--master=local[1]")],
    ids=" ".join,
)
def test_what_needs_spark_says_so(archive: str, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, f"--archive={archive}")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "Java" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("read", "--limit=0"),
        ("read", "--limit=0", "--table=shop.orders"),
        ("read", "--limit=0", "--columns=_commit_ts,_table"),
        ("history", "--table=shop.orders"),
    ],
    ids=" ".join,
)
def test_what_is_saved_is_what_is_shown(archive: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    command = (*arguments, f"--archive={archive}", "--output=json")
    save = f"--save={tmp_path / 'saved'}"
    done = run(*command, save)
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = (tmp_path / "saved").iterdir()
    table = parquet.read_table(file)
    assert table.num_rows > 3
    shown = run(*command).stdout.splitlines()
    assert sorted(json_lines.lines(table.schema, table.to_pylist())) == sorted(shown)
    again = run(*command, save)
    assert again.returncode != 0
    assert "has files already" in again.stderr


@pytest.mark.parametrize("missing", ["pyarrow", "numpy"])
def test_without_the_extra_one_line_says_what_to_install(archive: str, missing: str) -> None:
    done = run("read", f"--archive={archive}", missing=f"{NO_SPARK},{missing}")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "pip install 'tidb-binlog[arrow]'" in line


def test_rows_need_the_extra_subscribe_alone(archive: str) -> None:
    done = run(archive, missing=NOT_SUBSCRIBE, program=ROWS)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 50


def test_a_value_log_becomes_an_archive(tmp_path: Path) -> None:
    golden = Path("tests/golden/corpus/basic")
    with tarfile.open(golden / "pump-data.tar.gz") as recorded:
        recorded.extractall(tmp_path, **SAFE)
    history = golden / "ddl_jobs.jsonl.gz"
    to = tmp_path / "exported"
    done = run(
        "export", f"--from={tmp_path / 'pump-data'}", f"--ddl-history={history}", f"--to={to}", "--finished"
    )
    assert done.returncode == 0, done.stderr
    assert list(to.glob("binlog-*"))


def damaged(directory: Path) -> str:
    made = corpus.our_archive(items("basic"), directory, 8 << 10)
    path = min(path for path in directory.iterdir() if path.name.startswith("binlog-"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return made.uri


def test_a_small_audit(archive: str) -> None:
    done = run("audit", f"--archive={archive}", "--output=json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["links"] > 0
    (line,) = done.stderr.splitlines()
    assert "in this process; above 64.0 MiB (--small) in Spark's" in line
    done = run("audit", f"--archive={archive}", "--small=1KiB")
    assert done.returncode == 1
    assert "in Spark's processes, above 1.0 KiB (--small)" in done.stderr.splitlines()[0]
    assert "Java" in done.stderr.splitlines()[1]


def test_a_small_image_and_what_comes_after_it(archive: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    records = run("read", f"--archive={archive}", "--output=json", "--limit=0").stdout.splitlines()
    middle = json.loads(records[-9])["_commit_ts"]
    done = run("image", f"--archive={archive}", f"--at={middle}", f"--into={first}")
    assert done.returncode == 0, done.stderr
    done = run("image", f"--archive={archive}", f"--base={first}", f"--into={second}", "--output=json")
    assert done.returncode == 0, done.stderr
    assert sum(one["rows"] for one in json.loads(done.stdout)["tables"]) > 10
    assert run("audit", f"--archive={archive}", f"--image={second}").returncode == 0
    # An archive that begins there has nothing of what was not written since: the image has.
    later = [item for item in items("basic") if item.commit_ts > middle and isinstance(item, Transaction)]
    orders = [item for item in later if {events.table.name for events in item.tables} == {"orders"}]
    after = f"--archive={corpus.our_archive(orders, tmp_path / 'after').uri}"
    done = run("image", after, f"--base={first}", "--tables=shop.customer", f"--into={tmp_path / 'quiet'}")
    assert (done.returncode, "shop.customer" in done.stdout) == (0, True), done.stderr
    assert run("audit", after, f"--image={first}", "--tables=shop.customer").returncode == 0
    done = run("audit", after, f"--image={first}", "--tables=shop.costumer")
    assert (done.returncode, "has no table shop.costumer" in done.stderr) == (1, True)
    done = run("image", f"--archive={archive}", f"--into={tmp_path / 'third'}", "--small=0")
    assert done.returncode == 1
    assert "Java" in done.stderr


def test_a_small_flashback(archive: str, tmp_path: Path) -> None:
    file = tmp_path / "undo.sql"
    given = ("flashback", f"--archive={archive}", f"--file={file}", "--tables=shop.orders")
    records = run("read", f"--archive={archive}", "--tables=shop.orders", "--output=json", "--limit=0")
    last = json.loads(records.stdout.splitlines()[-1])["_commit_ts"]
    done = run(*given, f"--start={last}", "--small=0")
    assert done.returncode == 1
    assert "Java" in done.stderr
    done = run(*given, f"--start={last}")
    assert done.returncode == 0, done.stderr
    assert "`shop`.`orders`" in file.read_text()


def test_bad_input_is_one_line_with_its_exit_code(archive: str, tmp_path: Path) -> None:
    victim = damaged(tmp_path / "damaged")
    expected = {
        ("read", f"--archive={victim}", "--limit=0"): (6, "offset"),
        ("stats", f"--archive={victim}"): (6, "offset"),
        ("read", "--archive=/nowhere/at/all"): (1, "there is no directory"),
        ("read", f"--archive={archive}", "--table=shop.nope"): (1, "has no table shop.nope (it has shop."),
        ("read", f"--archive={archive}", "--tables=shop.nope"): (1, "has no table shop.nope (it has shop."),
        ("read", f"--archive={archive}", "--tables=nope.*", "--where=true"): (
            1,
            "has no table nope.* (it has",
        ),
        ("read", f"--archive={archive}", "--tables=shop.*,nope.*", "--master=local[1]"): (
            1,
            "has no table nope.* (it has",
        ),
        ("history", f"--archive={archive}", "--table=shop.nope", "--conf=a=b"): (1, "has no table shop.nope"),
        ("stats", f"--archive={archive}", "--tables=shop.*,nope.*"): (1, "has no table nope.* (it has shop."),
        ("history", f"--archive={archive}", "--table=shop.nope"): (1, "has no table shop.nope (it has shop."),
        ("history", f"--archive={archive}", "--table=shop.orders", "--key=idx=1"): (
            2,
            "shop.orders has no key column idx (its key is id)",
        ),
        ("history", f"--archive={archive}", "--table=shop.orders", "--key=note=1", "--master=local[1]"): (
            2,
            "shop.orders has no key column note (its key is id)",
        ),
        **{
            (command, f"--archive={archive}", "--tables=shop.orders,shop.nope", *more): (
                1,
                "has no table shop.nope (it has shop.",
            )
            for command, *more in (
                ("audit",),
                ("image", f"--into={tmp_path / 'image'}"),
                ("flashback", f"--file={tmp_path / 'undo.sql'}", "--start=1", "--conf=a=b"),
                ("replay", "--to=mysql://root@127.0.0.1:1/"),
            )
        },
        ("read", f"--archive={archive}", "--columns=nope"): (2, "changes has no column nope"),
        ("read", f"--archive={archive}", "--start=9", "--stop=5"): (1, "before it begins"),
        ("read", f"--archive={archive}", "--kind=parquet"): (2, "invalid choice"),
        ("audit", f"--archive={archive}", "--small=9 parsecs"): (2, "unhandled size name"),
        ("audit", f"--archive={archive}", "--report=/x.html"): (1, "a report has plots, and matplotlib"),
    }
    for arguments, (code, text) in expected.items():
        done = run(*arguments)
        (line,) = done.stderr.splitlines()
        assert done.returncode == code, line
        assert text in line
    (tmp_path / "gap").mkdir()
    for number, path in enumerate(sorted(Path(archive).glob("binlog-*"))):
        name = path.name.replace("0000000000000001", "0000000000000002") if number else path.name
        (tmp_path / "gap" / name).write_bytes(path.read_bytes())
    assert run("files", f"--archive={tmp_path / 'gap'}").returncode == 17
