"""The checkpoint as a file: Go's form both ways, whole or not at all, and whose directory it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drainer.checkpoint.savepoint import Savepoint, adopt_cluster, parse, render
from drainer.checkpoint.value import Checkpoint
from tidb_binlog.errors import ConfigError, Corruption, ForeignDirectory

# As a Go drainer wrote it.
RECORDED = "consistent = true\ncommitTS = 470607835489370114\nschema-version = 82\n"


def test_a_go_drainers_file_is_read_and_written_the_same() -> None:
    checkpoint = parse(RECORDED)
    assert checkpoint == Checkpoint(470607835489370114, True, 82)
    assert render(checkpoint) == RECORDED + "# crc32c = a9d0eacc\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Checkpoint(0, False, 0)),
        ("commitTS = 5\n", Checkpoint(5, False, 0)),
        ("commitTS = 5\n[positions.pump]\nFilename = 'binlog-1'\nOffset = 3\n", Checkpoint(5, False, 0)),
        ("committs = 5\nConsistent = true\nsaved = 2026-01-01\n", Checkpoint(5, True, 0)),
    ],
)
def test_older_forms_and_unknown_keys(text: str, expected: Checkpoint) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["{", 'commitTS = "5"', "commitTS = -5", "consistent = 1", "commitTS = 5.0"])
def test_what_is_no_savepoint_is_refused(text: str) -> None:
    with pytest.raises(Corruption, match="savepoint cannot be read"):
        parse(text)


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    savepoint = Savepoint(str(tmp_path))
    assert savepoint.load() is None
    savepoint.save(Checkpoint(5, False, 1))
    (tmp_path / "savepoint.new").write_text("torn")  # left by a crash
    assert savepoint.load() == Checkpoint(5, False, 1)
    before = os.stat(tmp_path / "savepoint").st_ino
    savepoint.save(Checkpoint(6, True, 1, epoch=3, safe_until=9))
    text = "consistent = true\ncommitTS = 6\nschema-version = 1\n"
    assert (tmp_path / "savepoint").read_text().startswith(f"{text}# ")
    assert os.stat(tmp_path / "savepoint").st_ino != before, "renamed, not written over"
    assert os.stat(tmp_path / "savepoint").st_mode & 0o777 == 0o644, (
        "a Go drainer of another user may read it"
    )
    assert os.listdir(tmp_path) == ["savepoint"]


def test_bytes_are_durable_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename

    def watched_sync(descriptor: int) -> None:
        calls.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{descriptor}'))}")
        fsync(descriptor)

    def watched_rename(before: str, after: str) -> None:
        calls.append("rename")
        rename(before, after)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "rename", watched_rename)
    Savepoint(str(tmp_path)).save(Checkpoint(5, False, 1))
    assert calls == ["sync savepoint.new", "rename", f"sync {tmp_path.name}"]


def test_another_clusters_directory_is_refused(tmp_path: Path) -> None:
    adopt_cluster(str(tmp_path), 7710435644538274660)
    adopt_cluster(str(tmp_path), 7710435644538274660)
    with pytest.raises(ForeignDirectory, match="belongs to cluster 7710435644538274660, but the upstream is"):
        adopt_cluster(str(tmp_path), 12)
    assert (tmp_path / ".cluster").read_text() == "7710435644538274660"


def test_a_go_drainers_directory_is_adopted(tmp_path: Path) -> None:
    (tmp_path / "savepoint").write_text(RECORDED)
    adopt_cluster(str(tmp_path), 12)
    assert Savepoint(str(tmp_path)).load() == Checkpoint(470607835489370114, True, 82)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "savepoint").mkdir()
    with pytest.raises(ConfigError, match="savepoint cannot be read"):
        Savepoint(str(tmp_path)).load()
    (tmp_path / ".cluster").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"\.cluster cannot be read"):
        adopt_cluster(str(tmp_path), 12)


def test_a_stream_begins_once_until_there_is_a_savepoint(tmp_path: Path) -> None:
    assert Savepoint(str(tmp_path)).begin(70) == 70
    assert Savepoint(str(tmp_path)).begin(90) == 70, "what was committed since then is not passed over"
    Savepoint(str(tmp_path)).save(Checkpoint(95, False, 0))
    assert os.listdir(tmp_path) == ["savepoint"]
    assert Savepoint(str(tmp_path)).begin(99) == 99
    assert os.listdir(tmp_path) == ["savepoint"]
    (tmp_path / "savepoint").unlink()
    (tmp_path / ".begin").write_text("soon")
    with pytest.raises(Corruption, match=r"\.begin holds no timestamp"):
        Savepoint(str(tmp_path)).begin(99)
