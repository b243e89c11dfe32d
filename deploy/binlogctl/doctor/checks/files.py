"""Files: configuration and TLS files, as they lie on the operator's host.

Out    findings: files that cannot be used, end soon, or do not fit; options that contradict each other or
       what this cluster is
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from binlogctl.doctor.facts import CertificateFacts
from binlogctl.doctor.findings import Check, Finding, all_of
from drainer.config.options import DrainerConfig
from drainer.mysql.session_mode import session_mode
from pump.config import PumpConfig
from tidb_binlog.config.declaring import defaults
from tidb_binlog.errors import ConfigError

SOON_S: Final = 30 * 86400.0
_SERVERS: Final = ("checkpoint_host", "checkpoint_user", "checkpoint_password", "checkpoint_password_file")


def check_certificate(seen: CertificateFacts, now_s: float) -> list[Finding]:
    """One set of TLS files."""
    subject = f"{seen.option} {seen.path}"
    renew = "issue a new certificate and put it in the same place: it is read again without a restart"
    if seen.error is not None:
        return Check("tls.files", subject).error(
            seen.error,
            "the node does not start, or keeps what it had until its restart",
            "correct the path, the rights of the file, or the pair of certificate and key",
        )
    if now_s >= seen.not_after_s:
        return Check("tls.expiry", subject).error(
            f"ended {_days(now_s - seen.not_after_s)} ago", "no peer accepts it any more", renew
        )
    if now_s < seen.not_before_s:
        return Check("tls.expiry", subject).error(
            f"begins in {_days(seen.not_before_s - now_s)}",
            "no peer accepts it yet",
            f"check the clocks; {renew}",
        )
    findings = []
    if seen.not_after_s - now_s < SOON_S:
        findings += Check("tls.expiry", subject).warning(
            f"ends in {_days(seen.not_after_s - now_s)}", "from then on every new connection fails", renew
        )
    if seen.trusted is False:
        findings += Check("tls.authority", subject).error(
            "its authority is not the one of ssl-ca",
            "peers that trust ssl-ca refuse it",
            "have it signed by the authority in ssl-ca, or add that authority to ssl-ca",
        )
    findings += all_of(
        Check("tls.names", subject).error(
            f"is for {', '.join(seen.names) or 'no host'}, not for {host}",
            "clients that check names, as ours do, refuse the connection",
            f"issue a certificate with the subject alternative name {host}",
        )
        for host in seen.hosts
        if not _names(host, seen.names)
    )
    return findings or Check("tls.files", subject).ok(
        f"{seen.common_name or 'no name'}, ends in {_days(seen.not_after_s - now_s)}"
    )


def check_unreadable(kind: str, path: str, failure: ConfigError) -> list[Finding]:
    """A configuration that the daemon would refuse."""
    return Check(f"{kind}.config", path).error(
        failure.message, f"the {kind} does not start with this file", failure.hint or f"correct {path}"
    )


def check_mode(kind: str, path: str, mode: int, *, has_secret: bool) -> list[Finding]:
    """`mode`: permission bits. The group may read: packages give files of root to the daemon's group."""
    if not has_secret or not mode & 0o007:
        return []
    return Check(f"{kind}.config", path).warning(
        f"holds a password and has mode {mode & 0o777:04o}",
        "every user of this host can read the password",
        f"chmod o= {path}   # or use password-file",
    )


def check_urls(
    kind: str, path: str, pd_urls: str, named: Collection[int], examined: Collection[int]
) -> list[Finding]:
    """A file whose pd-urls are not those of the examination: ids of the clusters that each of them names."""
    if not named or not examined:
        return Check(f"{kind}.config", path).unchecked(
            f"pd-urls is {pd_urls}, and does not answer here",
            "whether this node belongs to the cluster that is examined is not known",
            f"binlogctl doctor -pd-urls {pd_urls}   # on the node's own host",
        )
    if set(named) <= set(examined):
        return []
    return Check(f"{kind}.config", path).error(
        f"pd-urls is {pd_urls}, and that is another cluster than the one that is examined",
        "this node registers where the others of this cluster do not find it",
        "correct pd-urls in the file, or run doctor with its -pd-urls",
    )


def check_places(kind: str, path: str, refused: ConfigError | None, remarks: Sequence[str]) -> list[Finding]:
    """Directories of a node, by how their file systems are mounted on this host."""
    if refused is not None:
        why = f"the {kind} does not start with this file on this host"
        return Check(f"{kind}.config", path).error(refused.message, why, refused.hint)
    return all_of(
        Check(f"{kind}.config", path).warning(
            remark, "another host may not find what it needs", "see docs/nfs.md"
        )
        for remark in remarks
    )


def check_pump(settings: PumpConfig, path: str) -> list[Finding]:
    """A pump's file."""
    findings: list[Finding] = []
    if not settings.sync_log:
        findings += Check("pump.config", path).warning(
            "storage.sync-log is false",
            "a power cut loses binlogs that TiDB counts as stored: both sides differ then",
            "sync-log = true   # in [storage]",
        )
    return findings or Check("pump.config", path).ok("can be used")


def check_drainer(settings: DrainerConfig, path: str) -> list[Finding]:
    """A drainer's file."""
    findings = list(_contradictions(settings, path))
    if settings.sql_mode and session_mode(settings.sql_mode).strict == session_mode(settings.sql_mode).lax:
        findings += Check("drainer.sql_mode", path).warning(
            f"syncer.sql-mode is {settings.sql_mode!r}: not strict",
            "values that do not fit are clipped silently instead of stopping the drainer",
            'sql-mode = ""   # in [syncer]: strict, with the dates that the upstream took',
        )
    findings += all_of(Check("drainer.config", path).info(remark) for remark in settings.remarks())
    return findings or Check("drainer.config", path).ok("can be used")


def _contradictions(settings: DrainerConfig, path: str) -> Iterator[Finding]:
    ignored = {name.strip().lower() for name in settings.ignore_schemas.split(",")}
    for name in settings.replicate_do_db:
        if name.lower() in ignored:
            yield from Check("drainer.config", path).warning(
                f"{name} is in replicate-do-db and in ignore-schemas",
                "one of the two is not meant: nothing of it is replicated",
                f"take {name} out of one of them",
            )
    if settings.standby and not settings.node_id:
        yield from Check("drainer.config", path).warning(
            "standby = true without node-id",
            "the name would be made of host and port, so it never is the name of the drainer to stand by for",
            'node-id = "the name of the first drainer"',
        )
    # 1 is in every file that was made of the Go drainer's own.
    if settings.channel_id > 1 and not settings.loopback_control:
        yield from Check("drainer.config", path).warning(
            "channel-id is set, loopback-control is not",
            "nothing is marked and nothing dropped: in two-way replication rows go round in circles",
            "loopback-control = true   # in [syncer]",
        )
    usual = defaults(DrainerConfig)
    if not settings.checkpoint_type and any(getattr(settings, name) != usual[name] for name in _SERVERS):
        yield from Check("drainer.config", path).warning(
            "syncer.to.checkpoint names a server, but no type",
            "the server is passed over: the checkpoint is stored downstream",
            'type = "mysql"   # in [syncer.to.checkpoint]; or take the server out',
        )
    if settings.to_socket and settings.to_host:
        yield from Check("drainer.config", path).info(
            "syncer.to has a socket and a host", "the socket counts"
        )
    if "time_zone" in {name.lower() for name in settings.to_params}:
        yield from Check("drainer.config", path).info(
            "syncer.to.params.time_zone is passed over", "TIMESTAMPs are sent in UTC"
        )


def _names(host: str, names: Sequence[str]) -> bool:
    lowered = host.lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return any(name.lower() == lowered or _wild(name.lower(), lowered) for name in names)
    return any(_same(name, address) for name in names)


def _same(name: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return ipaddress.ip_address(name) == address
    except ValueError:
        return False


def _wild(name: str, host: str) -> bool:
    return name.startswith("*.") and "." in host and host.partition(".")[2] == name[2:]


def _days(seconds: float) -> str:
    return f"{seconds / 86400:.0f} days" if seconds >= 2 * 86400 else f"{seconds / 3600:.0f} h"
