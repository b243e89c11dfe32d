"""Remarks: keys that are read, and are not what their writer may take them for.

Out    lines for the log at the start, `binlogctl config check` and the doctor
Why    a Go drainer's file is taken as it is: what is in it either works, is refused, or is named here
Tests  tests/drainer/config/test_go_kafka_file.py, tests/drainer/config/test_places.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tidb_binlog import mount
from tidb_binlog.config.declaring import defaults, options

if TYPE_CHECKING:
    from drainer.config.options import DrainerConfig

OF_DATABASES: Final = (
    "worker_count",
    "txn_batch",
    "dispatch",
    "enable_dispatch",
    "disable_dispatch",
    "safe_mode",
    "strict",
    "sql_mode",
    "lane_queue_bytes",
    "quarantine_bytes",
    "keep_dropped_s",
    "ddl_conversions",
    "ddl_beside_rows",
    "to_host",
    "to_port",
    "to_socket",
    "to_read_timeout_s",
    "to_sync_mode",
    "to_params",
    "checkpoint_schema",
    "checkpoint_table",
    "checkpoint_host",
    "checkpoint_port",
    "checkpoint_user",
    "checkpoint_password",
    "checkpoint_encrypted_password",
    "checkpoint_password_file",
)
"""Fields that other kinds of downstream have no use for."""
OF_LANES: Final = (
    "worker_count",
    "txn_batch",
    "lane_queue_bytes",
    "ddl_beside_rows",
    "rate_rows",
    "rate_bytes",
    "relay_log_dir",
    "verify_every_s",
)
"""Fields of databases that only a Drainer goes by, and a stream of Spark while it works as one."""
OF_ARCHIVES: Final = ("to_dir", "retention_days", "to_file_size")
OF_LOGINS: Final = ("to_user", "to_password", "to_encrypted_password", "to_password_file")


def on_go_keys(config: DrainerConfig) -> list[str]:
    """Keys of Go drainers that have no meaning any more, or count as not set."""
    entries, unset = options(type(config)), defaults(type(config))
    said = [
        f"{entry.key or entry.flag} is accepted for Go's sake: {entry.help}"
        for name, entry in entries.items()
        if entry.deprecated
        and getattr(config, name) != unset[name]
        and (config.to_database or name not in OF_DATABASES)
    ]
    if config.to_database:
        for name in config.go_defaults:
            entry = entries[name]
            said.append(
                f"{entry.key} = {entry.go_default} is the Go drainer's default and counts as not set: it is "
                f"{unset[name]}, {entry.help}; -{entry.flag} {entry.go_default} means it"
            )
    return said


def on_others_keys(config: DrainerConfig) -> list[str]:
    """Keys that are for another kind of downstream."""
    if config.to_database:
        return []
    fields = [
        name for name in OF_DATABASES if not (config.has_savepoint_row and name.startswith("checkpoint_"))
    ]
    if config.to_kafka:
        fields += OF_ARCHIVES
        if not config.sasl_mechanism:
            fields += OF_LOGINS
    return _not_used(config, fields, f"with db-type {config.db_type}")


def on_lanes_keys(config: DrainerConfig) -> list[str]:
    """Keys that a stream of Spark does not go by."""
    where = "by a stream of Spark, except while it works as a Drainer"
    return _not_used(config, OF_LANES, where) if config.to_database else []


def _not_used(config: DrainerConfig, fields: Iterable[str], where: str) -> list[str]:
    entries, unset = options(type(config)), defaults(type(config))

    def is_set(name: str) -> bool:
        value: Any = getattr(config, name)
        return name in config.go_defaults or value != unset[name]

    keys = [str(entries[name].key) for name in fields if is_set(name)]
    return [f"{', '.join(keys)} {'are' if len(keys) > 1 else 'is'} not used {where}"] if keys else []


def on_mounts(settings: DrainerConfig) -> list[str]:
    """How the file systems of directories are mounted, which may be on NFS so that another host can go on
    with them. Raises `ConfigError` where a mount loses data."""
    places = {"data-dir": settings.data_dir}
    if settings.to_database:
        places["syncer.relay.log-dir"] = settings.relay_log_dir
    else:
        places["syncer.to.dir"] = settings.archive_place.local or ""
    return [
        remark
        for key, path in places.items()
        if path
        for remark in mount.check_shared(key, path, mount.on_path(path))
    ]
