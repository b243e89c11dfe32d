"""Mounts: the right one of a path, and which of them are refused, remarked on or taken as they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidb_binlog import mount
from tidb_binlog.errors import ConfigError
from tidb_binlog.mount import Mount

# As Linux writes them: two NFS mounts, one with a blank in its name, and a local disk mounted over another.
TABLE = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid shared:12 - proc proc rw
40 22 0:50 /export /data/relay rw,relatime shared:20 - nfs4 nas:/export rw,vers=4.2,hard,local_lock=none
41 22 0:51 / /data/my\\040files rw - nfs nas:/v3 rw,vers=3,hard,nolock,local_lock=all
42 22 254:2 / /srv rw - xfs /dev/vdb rw
43 22 254:3 / /srv rw - btrfs /dev/vdc rw
44 22 0:60 / /data/relay/inner rw - tmpfs tmpfs rw
nonsense - - -
45 22 0:61
"""


@pytest.mark.parametrize(
    ("path", "kind", "point"),
    [
        ("/", "ext4", "/"),
        ("/data", "ext4", "/"),
        ("/data/relayed", "ext4", "/"),
        ("/data/relay", "nfs4", "/data/relay"),
        ("/data/relay/logs/1", "nfs4", "/data/relay"),
        ("/data/relay/inner/x", "tmpfs", "/data/relay/inner"),
        ("/data/my files/x", "nfs", "/data/my files"),
        ("/srv/a", "btrfs", "/srv"),
    ],
)
def test_the_mount_of_a_path(path: str, kind: str, point: str) -> None:
    found = mount.of(path, TABLE)
    assert found is not None
    assert (found.kind, found.point) == (kind, point)


def test_options_are_those_of_the_mount_and_of_its_file_system() -> None:
    found = mount.of("/data/relay", TABLE)
    assert found is not None
    assert {"relatime", "vers=4.2", "hard", "local_lock=none"} <= found.options
    assert str(found) == "nfs4 (nas:/export on /data/relay)"


def test_a_system_that_says_nothing_forbids_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mount.of("/x", "") is None
    monkeypatch.setattr(mount, "MOUNTINFO", str(tmp_path / "none"))
    assert mount.on_path(str(tmp_path)) is None
    assert mount.check_local("data-dir", "/x", None) == []
    assert mount.check_shared("data-dir", "/x", None) == []


def test_this_machine_s_own_mounts_are_read(tmp_path: Path) -> None:
    """Also by a symbolic link, and of a directory that is not there yet."""
    (tmp_path / "link").symlink_to(tmp_path)
    found = mount.on_path(str(tmp_path / "link" / "later"))
    if os.path.exists(mount.MOUNTINFO):
        assert found is not None
        assert str(tmp_path).startswith(found.point)


def on(kind: str, *options: str) -> Mount:
    return Mount("/data", kind, "nas:/export", frozenset(options))


SAFE = ("rw", "vers=4.2", "hard", "local_lock=none")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "9p", "unheard-of"])
def test_local_file_systems_are_taken(kind: str) -> None:
    assert mount.check_local("data-dir", "/data/pump", on(kind)) == []
    assert mount.check_shared("data-dir", "/data/x", on(kind, "nolock", "soft")) == []


@pytest.mark.parametrize("kind", ["nfs", "nfs4"])
def test_a_pump_refuses_nfs_however_it_is_mounted(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"data-dir /data/pump lies on {kind} ") as refused:
        mount.check_local("data-dir", "/data/pump", on(kind, *SAFE))
    assert "docs/nfs.md" in refused.value.hint


@pytest.mark.parametrize("kind", sorted(mount.NETWORK - mount.NFS))
def test_other_network_file_systems_are_remarked_on(kind: str) -> None:
    (pump,) = mount.check_local("data-dir", "/data/pump", on(kind))
    (drainer,) = mount.check_shared("syncer.relay.log-dir", "/data/relay", on(kind, "soft"))
    assert pump.startswith(f"data-dir /data/pump lies on {kind} ")
    assert drainer.startswith(f"syncer.relay.log-dir /data/relay lies on {kind} ")
    assert "it is not known" in pump


def test_nfs_as_it_should_be_is_taken_in_silence() -> None:
    assert mount.check_shared("syncer.relay.log-dir", "/data/relay", on("nfs4", *SAFE)) == []


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("nolock", "locks hold on this host alone"),
        ("local_lock=all", "locks hold on this host alone"),
        ("local_lock=flock", "locks hold on this host alone"),
        ("soft", "may be carried out later"),
        ("softerr", "may be carried out later"),
    ],
)
def test_nfs_that_loses_data_is_refused(option: str, why: str) -> None:
    options = [one for one in SAFE if not (one == "hard" and option.startswith("soft"))]
    with pytest.raises(ConfigError, match=why) as refused:
        mount.check_shared("syncer.to.dir", "/data/archive", on("nfs4", *options, option))
    assert f"with {option}:" in refused.value.message
    assert refused.value.hint


def test_what_is_worth_a_look_is_said() -> None:
    (old,) = mount.check_shared("data-dir", "/data", on("nfs", "vers=3", "hard", "local_lock=none"))
    assert "stays until that host is up again" in old
    (stale,) = mount.check_shared("data-dir", "/data", on("nfs4", *SAFE, "nocto"))
    assert "as they were before" in stale
