"""Files: whole or as before, in no other process's file, with names that a power cut does not take."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidb_binlog import filesystem
from tidb_binlog.errors import ConfigError
from tidb_binlog.filesystem import make_directory, read_file, replace_file, unusable


def test_a_planted_link_leads_nowhere(tmp_path: Path) -> None:
    """Where others may write the directory, what they put in the way is no file of theirs that is written."""
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    ours = tmp_path / "ours"
    for name in ("ours.new", "ours"):
        (tmp_path / name).symlink_to(theirs)
    replace_file(str(ours), b"ours")
    assert theirs.read_text() == "theirs"
    assert ours.read_text() == "ours"
    assert not ours.is_symlink()


def test_a_file_that_somebody_holds_open_is_not_the_new_one(tmp_path: Path) -> None:
    """Left by a process that was killed, or made by another process that wants to write into it later."""
    (tmp_path / "ours.new").write_text("some of it")
    with (tmp_path / "ours.new").open("r+") as held:
        replace_file(str(tmp_path / "ours"), b"ours")
        held.write("else")
    assert (tmp_path / "ours").read_text() == "ours"
    assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """What was synced, and what was in it then."""
    seen = []
    sync = filesystem.sync_directory

    def watched(path: str) -> None:
        seen.append((path, sorted(os.listdir(path))))
        sync(path)

    monkeypatch.setattr(filesystem, "sync_directory", watched)
    return seen


def test_each_new_directory_is_on_the_medium_before_the_next_is_made(
    tmp_path: Path, synced: list[tuple[str, list[str]]]
) -> None:
    top = str(tmp_path)
    make_directory(f"{top}/a/b/c", 0o700)
    assert synced[-3:] == [(top, ["a"]), (f"{top}/a", ["b"]), (f"{top}/a/b", ["c"])]
    assert (tmp_path / "a/b/c").stat().st_mode & 0o777 == 0o700
    synced.clear()
    make_directory(f"{top}/a/b/c", 0o700)  # a killed process may have made it, and synced nothing
    assert synced == [(f"{top}/a/b", ["c"])]


def test_what_is_no_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directory(str(tmp_path / "file"), 0o700)
    with pytest.raises(OSError, match="file"):
        make_directory(str(tmp_path / "file" / "inside"), 0o700)


def test_a_directory_that_another_process_makes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def mkdir_twice(path: str, mode: int) -> None:
        mkdir(path, mode)
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", mkdir_twice)
    make_directory(str(tmp_path / "a" / "b"), 0o700)
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("call", ["fsync", "write", "pread"])
def test_an_error_of_a_descriptor_names_the_file(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or whoever it ends could not say where."""
    path = str(tmp_path / "file")
    replace_file(path, b"before")

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, call, failing)
    use: Callable[[], object] = (
        (lambda: read_file(path)) if call == "pread" else (lambda: replace_file(path, b"after"))
    )
    with pytest.raises(OSError, match="Input/output error") as caught:
        use()
    assert caught.value.filename == path


def test_a_disk_that_fails_is_no_wrong_configuration() -> None:
    """A supervisor starts no node again whose configuration is wrong."""
    for number in (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EMFILE):
        error = unusable("data directory d cannot be used", OSError(number, os.strerror(number)), "choose")
        assert error.exit_code == 2, number
        assert "choose" not in error.hint
    for number in (errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.EROFS):
        error = unusable("data directory d cannot be used", OSError(number, os.strerror(number)), "choose")
        assert isinstance(error, ConfigError)
        assert error.hint == "choose"
