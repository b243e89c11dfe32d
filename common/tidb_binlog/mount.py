"""Mount: which file system a directory lies on, and whether what is kept there is safe on it.

Out    `Mount`; for a directory of data a `ConfigError`, or remarks
Holds  nothing is refused that is not known to be unsafe: a kind that is not listed counts as local
Why    locks, syncs and renames of a network file system keep what they promise only if it is mounted so; and
       two nodes that both believe to have the lock write over each other. docs/nfs.md has the reasons
"""

from __future__ import annotations

import os
import re
from typing import Final

from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass

MOUNTINFO: Final = "/proc/self/mountinfo"
NFS: Final = frozenset({"nfs", "nfs4"})
NETWORK: Final = NFS | {
    "afs",
    "ceph",
    "cifs",
    "fuse.ceph",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.goofys",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "smb3",
}
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_LOCKS_HERE: Final = ("nolock", "local_lock=all", "local_lock=flock")
_SOFT: Final = ("soft", "softerr")


@dataclass(frozen=True, slots=True)
class Mount:
    """`point`: where; `kind`: as /proc names it; `options`: of this mount and of its file system."""

    point: str
    kind: str
    source: str
    options: frozenset[str]

    @property
    def is_network(self) -> bool:
        return self.kind in NETWORK

    def __str__(self) -> str:
        return f"{self.kind} ({self.source} on {self.point})"


def parse(mountinfo: str) -> list[Mount]:
    """All mounts in their order; lines of another form are passed over.

    36 35 98:0 / /data rw,noatime master:1 - nfs4 server:/export rw,vers=4.2,hard,local_lock=none
    """
    mounts = []
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, of_system = before.split(" "), after.split(" ")
        if not dash or len(fields) < 6 or len(of_system) < 2:
            continue
        options = fields[5].split(",") + (of_system[2].split(",") if len(of_system) > 2 else [])
        mounts.append(
            Mount(_unescaped(fields[4]), of_system[0], _unescaped(of_system[1]), frozenset(options))
        )
    return mounts


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), text)


def of(path: str, mountinfo: str) -> Mount | None:
    """The mount that a path without symbolic links lies on; of several at one point the last counts."""
    holding = [
        mount for mount in parse(mountinfo) if path == mount.point or path.startswith(_below(mount.point))
    ]
    return max(enumerate(holding), key=lambda at: (len(at[1].point), at[0]))[1] if holding else None


def _below(point: str) -> str:
    return point if point.endswith("/") else f"{point}/"


def on_path(path: str) -> Mount | None:
    """Of a directory that need not exist yet; None where the system does not tell."""
    try:
        with open(MOUNTINFO, encoding="utf-8", errors="surrogateescape") as file:
            mountinfo = file.read()
    except OSError:
        return None
    return of(os.path.realpath(path), mountinfo)


def check_local(key: str, path: str, mount: Mount | None) -> list[str]:
    """For a directory with an index. Raises `ConfigError` if it lies on NFS; remarks on others."""
    if mount is None or not mount.is_network:
        return []
    if mount.kind in NFS:
        raise ConfigError(
            f"{key} {path} lies on {mount}: a pump's index is locked in two ways and mapped into memory, "
            "which NFS does not allow",
            hint=f"put {key} on a disk of this host (docs/nfs.md)",
        )
    return [_unknown(key, path, mount)]


def _unknown(key: str, path: str, mount: Mount) -> str:
    return f"{key} {path} lies on {mount}: it is not known whether locks and syncs hold there (docs/nfs.md)"


def check_shared(key: str, path: str, mount: Mount | None) -> list[str]:
    """For a directory that may be on NFS, so that another host can go on with it. Raises `ConfigError` where
    it is mounted in a way that loses data; remarks about what is worth a look."""
    if mount is None or not mount.is_network:
        return []
    where = f"{key} {path} lies on {mount}"
    if mount.kind not in NFS:
        return [_unknown(key, path, mount)]
    for option in _LOCKS_HERE:
        if option in mount.options:
            raise ConfigError(
                f"{where} with {option}: its locks hold on this host alone, and another one could write "
                "there at the same time",
                hint="mount it without nolock and local_lock, as NFS 4.1 or later (docs/nfs.md)",
            )
    for option in _SOFT:
        if option in mount.options:
            raise ConfigError(
                f"{where} with {option}: a write that was given up may be carried out later, over newer "
                "records",
                hint="mount it with hard, which is the default (docs/nfs.md)",
            )
    said = []
    if not {option for option in mount.options if option.startswith("vers=4")}:
        said.append(
            f"{where} without vers=4: the lock of a host that died stays until that host is up again; mount "
            "it as NFS 4.1 or later (docs/nfs.md)"
        )
    if "nocto" in mount.options:
        said.append(f"{where} with nocto: other hosts may see files as they were before (docs/nfs.md)")
    return said
