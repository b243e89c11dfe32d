"""A start on NFS: refused before anything is touched where that loses data, remarked on where it may not be
what is meant. And docs/nfs.md says what is so."""

from __future__ import annotations

import errno
import os
import re
import tomllib
from pathlib import Path

import pytest

from drainer.checkpoint.savepoint import Savepoint
from drainer.config import remarks
from drainer.config.options import ENV_PREFIX, DrainerConfig
from drainer.formats.binlog_directory import BinlogDirectory, Broken
from drainer.sink.savepoint_keeper import SavepointKeeper
from pump import program as pump_main
from tidb_binlog import mount
from tidb_binlog.clock import SystemClock
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "nfs.md").read_text()
SAFE = "rw,vers=4.2,hard,local_lock=none"


@pytest.fixture
def nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that the system calls NFS; `mounted` says how."""
    mounted(tmp_path, SAFE)
    monkeypatch.setattr(mount, "MOUNTINFO", str(tmp_path / "mountinfo"))
    return tmp_path / "nas"


def mounted(tmp_path: Path, options: str) -> None:
    at = f"{os.path.realpath(tmp_path)}/nas"
    (tmp_path / "mountinfo").write_text(
        f"22 1 254:1 / / rw - ext4 /dev/vda1 rw\n40 22 0:50 / {at} rw - nfs4 nas:/export {options}\n"
    )


def settings(path: Path, text: str) -> DrainerConfig:
    file = path / "drainer.toml"
    file.write_text(text)
    return loading.load(DrainerConfig, [f"-config={file}"], {}, program="drainer", env_prefix=ENV_PREFIX)


async def test_a_pump_does_not_start_there(nfs: Path) -> None:
    with pytest.raises(ConfigError, match="locked in two ways and mapped into memory"):
        await pump_main.run([f"-data-dir={nfs}/pump"])
    assert not nfs.exists(), "nothing was made"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("syncer.relay.log-dir", '[syncer.relay]\nlog-dir = "{nfs}/relay"'),
        ("syncer.to.dir", '[syncer]\ndb-type = "file"\n[syncer.to]\ndir = "{nfs}/archive"'),
        ("data-dir", 'data-dir = "{nfs}/data"\n[syncer]\ndb-type = "kafka"'),
    ],
)
def test_each_directory_of_a_drainer_is_looked_at(nfs: Path, tmp_path: Path, key: str, text: str) -> None:
    config = settings(tmp_path, text.replace("{nfs}", str(nfs)))
    assert remarks.on_mounts(config) == []
    mounted(tmp_path, SAFE.replace("4.2", "3"))
    (remark,) = remarks.on_mounts(config)
    assert remark.startswith(f"{key} {nfs}/")
    mounted(tmp_path, "rw,vers=4.2,soft,local_lock=none")
    with pytest.raises(ConfigError, match=f"^{key} .* with soft"):
        remarks.on_mounts(config)


# -- a handle that the server does not know any more ---------------------------------------------------


def stale(*arguments: object) -> None:
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_relay_log_or_archive_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = BinlogDirectory(str(tmp_path / "relay"), SystemClock())
    monkeypatch.setattr(os, "fdatasync", stale)
    with pytest.raises(Broken, match="Stale file handle") as broken:
        directory.sync()
    assert "unmount and mount the directory" in broken.value.hint
    monkeypatch.undo()
    with pytest.raises(Broken):
        directory.sync()  # nothing is written any more
    directory.close()


async def test_a_savepoint_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = SavepointKeeper(Savepoint(str(tmp_path)), 0, SystemClock())
    monkeypatch.setattr(os, "rename", stale)
    with pytest.raises(Broken, match="savepoint cannot be written") as broken:
        await keeper.save(5, 1)
    assert "unmount and mount the directory" in broken.value.hint


def test_a_file_that_nfs_keeps_for_who_has_it_open_is_no_segment(tmp_path: Path) -> None:
    """The client renames what is removed while it is open."""
    directory = BinlogDirectory(str(tmp_path), SystemClock())
    directory.close()
    (tmp_path / ".nfs00000000025c41a900000001").write_bytes(b"removed")
    again = BinlogDirectory(str(tmp_path), SystemClock())
    assert list(again.files) == [0]
    again.close()


# -- the page ------------------------------------------------------------------------------------------


def test_its_mount_is_taken_and_its_table_is_what_is_checked(tmp_path: Path) -> None:
    (line,) = re.findall(r"^```fstab\n(.*?)^```$", PAGE, re.M | re.S)
    source, point, kind, options, *_ = line.split()
    found = mount.Mount(point, kind, source, frozenset(options.split(",")))
    assert mount.check_shared("syncer.relay.log-dir", f"{point}/relay", found) == []
    rows = re.findall(r"^\| `([^`]+)`[^|]*\| (refused|remark) \|", PAGE, re.M)
    assert len(rows) == 7
    for option, verdict in rows:
        other = mount.Mount(point, kind, source, found.options - {"vers=4.2"} | set(option.split(",")))
        if verdict == "refused":
            with pytest.raises(ConfigError, match=option.split(",")[0]):
                mount.check_shared("data-dir", point, other)
        else:
            assert mount.check_shared("data-dir", point, other)


def test_its_files_are_right_and_its_commands_are_known(tmp_path: Path) -> None:
    for number, text in enumerate(re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)):
        (tmp_path / str(number)).mkdir()
        config = settings(tmp_path / str(number), text)
        assert tomllib.loads(text)["syncer"]
        assert config.relay_log_dir.startswith("/nas/") or config.to_dir.startswith("/nas/")
    commands = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    assert any(text.startswith("binlogctl doctor -pump-config") for text in commands)
    flags = re.findall(r"drainer -config \S+ (\S+)", "".join(commands))
    assert all(
        loading.load(DrainerConfig, [flag], {}, program="drainer", env_prefix=ENV_PREFIX) for flag in flags
    )
