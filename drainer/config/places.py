"""Places: the directories of a drainer that may be on NFS, so that another host can go on with them."""

from __future__ import annotations

from drainer.config.options import DrainerConfig
from tidb_binlog import mount


def check(settings: DrainerConfig) -> list[str]:
    """Remarks on how their file systems are mounted. Raises `ConfigError` where that loses data."""
    places = {"data-dir": settings.data_dir}
    if settings.to_database:
        places["syncer.relay.log-dir"] = settings.relay_log_dir
    else:
        places["syncer.to.dir"] = settings.to_dir
    return [
        remark
        for key, path in places.items()
        if path
        for remark in mount.check_shared(key, path, mount.found(path))
    ]
