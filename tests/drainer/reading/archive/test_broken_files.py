"""Files that were cut, overwritten or are of another program: what is read of them is what was there, or an
error says where it ends. Nothing else is raised, and no row is made up."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import drainer
from drainer.changes.model import Ddl
from tests.spark.support.replay_world import SOURCES
from tidb_binlog.errors import BinlogError

TRIALS = 12
Read = list[tuple[object, ...]]


def read(archive: Path, found: Read) -> None:
    """Every item in a form that can be compared, up to what is raised."""
    for item in drainer.open_archive(str(archive)):
        if isinstance(item, Ddl):
            found.append((item.commit_ts, item.query))
            continue
        rows = [(row.table.name, row.kind, str(row.before), str(row.after)) for row in item.rows]
        found.append((item.commit_ts, *rows))


def flipped(data: bytearray, at: int, pick: random.Random) -> None:
    data[at] ^= 1 << pick.randrange(8)


def cut(data: bytearray, at: int, pick: random.Random) -> None:
    del data[at:]


def longer(data: bytearray, at: int, pick: random.Random) -> None:
    data[at:at] = pick.randbytes(pick.randrange(1, 40))


def zeroed(data: bytearray, at: int, pick: random.Random) -> None:
    size = min(pick.randrange(1, 200), len(data) - at)
    data[at : at + size] = bytes(size)


def turned(data: bytearray, at: int, pick: random.Random) -> None:
    data[:] = data[at:] + data[:at]


def followed(data: bytearray, at: int, pick: random.Random) -> None:
    data += pick.randbytes(pick.randrange(1, 60))


def foreign(data: bytearray, at: int, pick: random.Random) -> None:
    data[:] = pick.randbytes(300)


BREAKS = [flipped, cut, longer, zeroed, turned, followed, foreign]


@pytest.fixture(scope="module", params=["go-events", "archive", "relay"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Read]:
    archive = SOURCES[request.param]("basic", tmp_path_factory.mktemp("whole") / "archive")
    found: Read = []
    read(archive, found)
    return archive, found


@pytest.mark.parametrize("damage", BREAKS, ids=lambda one: one.__name__)
def test_what_is_read_of_a_broken_file_was_there(
    whole: tuple[Path, Read], tmp_path: Path, damage: Callable[[bytearray, int, random.Random], None]
) -> None:
    archive, items = whole
    assert len(items) > 40
    for seed in range(TRIALS):
        pick, broken = random.Random(seed), tmp_path / str(seed)
        shutil.copytree(archive, broken)
        files = sorted(path for path in broken.glob("binlog-*") if path.stat().st_size)
        file = pick.choice(files)
        data = bytearray(file.read_bytes())
        damage(data, pick.randrange(len(data)), pick)
        file.write_bytes(data)
        said, found = "", Read()
        try:
            read(broken, found)
        except BinlogError as error:
            said = str(error)
        assert "\n" not in said
        assert found == items[: len(found)], f"{damage.__name__} {seed} of {file.name}"
