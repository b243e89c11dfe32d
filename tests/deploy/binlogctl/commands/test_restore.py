"""binlogctl restore and docs/restore.md: the page's commands do what it says, by the program itself."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogctl.cli import command_line
from binlogctl.cli.command_line import Call
from binlogctl.commands import load, restore
from drainer.mysql.connection import Target
from drainer.reparo.ordered_records import Seen
from tests.deploy.binlogctl.conftest import Ctl
from tests.drainer.conftest import target as empty_target
from tests.drainer.points.restore.image_world import make_image
from tests.drainer.support.apply_life import differences, drainer_at_work, run
from tests.missing import without
from tests.spark.support.replay_world import our_archive
from tidb_binlog.errors import FlagError

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "restore.md").read_text()
SHELL = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()
]
DESTINATION, ROUTE = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
IMAGE_SHARE = 0.5

target = empty_target


@pytest.fixture
def world(target: Target, tmp_path: Path) -> Iterator[Path]:
    """Image, archive and the file of the page."""
    make_image("basic", tmp_path / "images" / "monday", share=IMAGE_SHARE)
    our_archive("basic", tmp_path / "archive")
    account = f'port = {target.port}\nuser = "{target.user}"\npassword = "{target.password}"\n'
    text = re.sub(r"port = .*\n(.*\n)*", account, DESTINATION)
    assert tomllib.loads(text)["syncer"]["to"]["port"] == target.port
    (tmp_path / "to.toml").write_text(text)
    yield tmp_path
    shutil.rmtree(tmp_path / "images")


def argv(line: str, place: Path) -> list[str]:
    program, *found = shlex.split(line)
    assert program == "binlogctl"
    return [
        str(place / word.lstrip("/"))
        if word.startswith(("/images", "/archive")) or word == "to.toml"
        else word
        for word in found
    ]


def lines(flag: str) -> list[str]:
    return [line for line in SHELL if line.startswith("binlogctl restore") and flag in line]


async def test_its_commands_restore_up_to_a_time_and_go_on(ctl: Ctl, world: Path, target: Target) -> None:
    dry, first, rest = lines("-image")
    counted = await ctl(*argv(dry, world))
    assert counted.code == 0, counted.err
    assert counted.out.splitlines()[-1].endswith("Nothing was written.")
    assert ("shop",) not in run(target, "SHOW DATABASES")
    done = await ctl(*argv(first, world))
    assert (done.code, done.err) == (0, done.err), done.err
    (shown,) = re.findall(r"^```text\n(.*?) in .* s\n```$", PAGE, re.M | re.S)
    assert done.out.startswith(f"{shown} in ")
    assert "(2026-11-21T01:48:20.439Z), equal to what image and archive come to" in done.out.splitlines()[-1]
    assert differences("basic", target) != []
    found = json.loads((await ctl(*argv(rest, world))).out)
    assert (found["finished"], found["different"], found["drift"]) == (True, [], {})
    assert differences("basic", target) == []
    run(target, "UPDATE shop.orders SET id=id+1000 ORDER BY id DESC LIMIT 1", "SELECT 1")
    wrong = await ctl(*argv(rest, world), "-output", "text")
    assert (wrong.code, "NOT equal" in wrong.out) == (14, True)


async def test_a_backup_goes_on_from_its_time(ctl: Ctl, world: Path, target: Target) -> None:
    dump, _ = lines("-backup")
    image = await ctl(*argv(lines("-image")[2].replace(" -archive /archive", ""), world))
    ts = json.loads(image.out)["upto_ts"]
    (world / "backup" / "dump").mkdir(parents=True)
    (world / "backup" / "dump" / "metadata").write_text(
        f"SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {ts}\n\nFinished dump at: 2026-11-23 03:00:00\n"
    )
    done = await ctl(*argv(dump.replace("/backup", str(world / "backup")), world))
    assert done.code == 0, done.err
    assert "what the backup has is not known here" in done.out
    assert differences("basic", target) == []


async def test_rows_under_other_names_lie_beside_those_in_use(ctl: Ctl, world: Path, target: Target) -> None:
    run(target, "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT)", "SELECT 1")
    run(target, "INSERT INTO shop.orders VALUES (1)", "SELECT 1")
    refused = await ctl(*argv(lines("-image")[2], world))
    assert (refused.code, "has rows at the destination already" in refused.err) == (4, True)
    with (world / "to.toml").open("a") as file:
        file.write(ROUTE)
    with drainer_at_work(target):  # it writes the table in use
        stopped = await ctl(*argv(lines("-image")[2], world))
        assert (stopped.code, "go on with -beside-drainer" in stopped.err) == (5, True)
        done = await ctl(*argv(lines("-image")[2], world), "-beside-drainer")
    assert (done.code, json.loads(done.out)["different"]) == (0, [])
    assert run(target, "SELECT COUNT(*) > 10 FROM shop_monday.orders") == [(1,)]
    assert run(target, "SELECT * FROM shop.orders") == [(1,)]


@pytest.mark.parametrize("line", [line for line in SHELL if "load" in line.split()])
def test_its_commands_write_an_image(line: str) -> None:
    found = command_line.parse(shlex.split(line)[1:], {})
    assert isinstance(found, Call)
    assert load.writes_image(found)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("-to archive", "needs -dir"),
        ("-dir x", "is for -to archive"),
        ("-to tape", "'tape'"),
        ("-to archive -dir x -replace", "are for databases"),
    ],
)
def test_an_image_that_makes_no_sense_is_refused(more: str, text: str) -> None:
    found = command_line.parse(["load", *more.split()], {})
    assert isinstance(found, Call)
    with pytest.raises(FlagError, match=text):
        load.writes_image(found)


def test_codes_that_the_page_names_are_the_programs() -> None:
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.M)} <= {*range(1, 8), 14}
    found = command_line.parse(["restore"], {})
    assert isinstance(found, Call)
    with pytest.raises(FlagError, match="restore needs -drainer-config"):
        restore.options(found)


def test_the_line_says_how_far_it_is() -> None:
    assert restore.line(Seen(bytes=25, bytes_all=100), 5000, 2.0) == (
        "restore: 25% read, 5,000 rows (2,500/s), about 6 s left"
    )
    assert restore.line(Seen(), 0, 0.0) == "restore: 0% read, 0 rows (0/s)"


@pytest.mark.parametrize("line", ["restore -image x", "load -to archive -dir x"])
async def test_a_host_without_arrow_is_told_what_to_install(
    ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "d.toml").write_text(DESTINATION)
    without(monkeypatch, "pyarrow", forget=r"drainer\.points\.(dump|image|restore)")
    done = await ctl(*line.split(), "-drainer-config", str(tmp_path / "d.toml"))
    assert (done.code, "pip install 'tidb-binlog[arrow]'" in done.err) == (1, True), done.err
