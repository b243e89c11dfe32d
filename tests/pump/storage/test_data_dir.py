"""The data directory: private, on the medium, and nobody's link is followed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pump.storage.data_dir import DataDir
from pump.storage.opening import StorageLimits
from tests.pump.support.payloads import opened, put_pair
from tidb_binlog import filesystem
from tidb_binlog.errors import ConfigError


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
async def test_what_is_made_is_for_nobody_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "pump"
    async with opened(path, limits=StorageLimits(segment_bytes_max=1000)) as storage:
        for ts in range(10, 100, 10):
            await put_pair(storage, ts, ts + 1, bytes(300))
        storage.purged_to(1)
    for directory in (path, path / "value", path / "kv"):
        assert directory.stat().st_mode & 0o777 == 0o700, directory
    for file in [*path.glob("value/*"), *path.glob(".*")]:
        assert file.stat().st_mode & 0o777 == 0o600, file
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o755])
@pytest.mark.parametrize("name", ["", "value", "kv"])
def test_what_others_may_write_is_told(
    mode: int, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pump" / name).mkdir(parents=True)
    (tmp_path / "pump").chmod(0o700)
    (tmp_path / "pump" / name).chmod(mode)
    DataDir(str(tmp_path / "pump")).close()
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == (1 if mode & 0o22 else 0)


@pytest.mark.parametrize("name", [".lock", "kv/LOCK"])
def test_a_lock_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "pump/kv").mkdir(parents=True)
    (tmp_path / "pump" / name).symlink_to(tmp_path / "theirs")
    with pytest.raises(ConfigError, match=name):
        DataDir(str(tmp_path / "pump"))
    assert not (tmp_path / "theirs").exists()


def test_the_directory_itself_is_on_the_medium_before_anything_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    sync = filesystem.sync_directory

    def watched(path: str) -> None:
        synced.append((path, sorted(os.listdir(path))))
        sync(path)

    monkeypatch.setattr(filesystem, "sync_directory", watched)
    DataDir(str(tmp_path / "new" / "pump")).close()
    assert (str(tmp_path), ["new"]) in synced
    assert (str(tmp_path / "new"), ["pump"]) in synced
    assert synced.index((str(tmp_path / "new"), ["pump"])) < synced.index(
        (str(tmp_path / "new/pump"), [".lock", "kv"])
    )


@pytest.mark.parametrize("text", ["yesterday", "\u00b2", "1" * 5000, "-1", "1.5"])
def test_a_purged_timestamp_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    data_dir = DataDir(str(tmp_path))
    try:
        (tmp_path / ".purged-files").write_text(text)
        assert data_dir.purged_fid == 0
        (tmp_path / ".purged").write_text(text)
        with pytest.raises(ConfigError, match="is not a timestamp"):
            _ = data_dir.purged_ts
    finally:
        data_dir.close()
