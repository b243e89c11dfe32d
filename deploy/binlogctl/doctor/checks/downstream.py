"""Downstream: whether a MySQL, MariaDB or TiDB server is what a drainer needs.

In     `DownstreamFacts`, seen with the drainer's own user; what it replicates; the upstream's zone if known
Out    findings: whether it can be reached, its version, rights, and its settings (`check_variables`)
Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

import re
from typing import Final

from binlogctl.doctor.checks import grants
from binlogctl.doctor.checks.variables import check_variables, check_writable
from binlogctl.doctor.facts import DownstreamFacts, Replicated
from binlogctl.doctor.findings import Check, Finding, Severity

_NO_GRANT_CHECK: Final = "SHOW GRANTS could not be read"
_SHOWN_MAX: Final = 10
# Oldest release of each kind whose statements a drainer is made for.
_OLDEST: Final = {"mariadb": (10, 3), "mysql": (5, 7)}


def check_downstream(
    seen: DownstreamFacts, replicated: Replicated, upstream_zone_s: float | None = None
) -> list[Finding]:
    """`upstream_zone_s`: the time zone that the upstream's users have, east of UTC."""
    if seen.error is not None:
        return _unreachable(seen)
    findings = Check("downstream.reachable", seen.where).ok(
        f"{seen.version or 'unknown version'}, as {seen.user or 'unknown user'}"
    )
    findings += _version(seen)
    findings += _rights(seen, replicated)
    findings += _untransactional(seen, replicated)
    return findings + check_variables(seen, replicated, upstream_zone_s)


def check_row_server(seen: DownstreamFacts) -> list[Finding]:
    """The server of the checkpoint row, where it is another one."""
    if seen.error is not None:
        return _unreachable(seen)
    return [
        *Check("downstream.reachable", seen.where).ok(f"{seen.version}, has the checkpoint row"),
        *check_writable(seen),
    ]


def _unreachable(seen: DownstreamFacts) -> list[Finding]:
    if seen.refused:
        return Check("downstream.login", seen.where).error(
            str(seen.error),
            "the drainer cannot log in either",
            "correct user and password in the section of the drainer's file that names this server; on the"
            " server: CREATE USER 'drainer'@'%' IDENTIFIED BY '...';",
        )
    return Check("downstream.reachable", seen.where).error(
        str(seen.error),
        "the drainer waits, and pumps keep binlogs for it, until it answers (if this host may reach it"
        " at all)",
        "start the server; check host, port and TLS in the drainer's file",
    )


def _version(seen: DownstreamFacts) -> list[Finding]:
    if seen.is_tidb or not any(_release(seen)):
        return []
    kind = "mariadb" if seen.is_mariadb else "mysql"
    if _release(seen) >= _OLDEST[kind]:
        return []
    oldest = ".".join(map(str, _OLDEST[kind]))
    return Check("downstream.version", seen.where).warning(
        seen.version,
        "statements are made and tested for later releases",
        f"upgrade the server to {kind} {oldest} or later",
    )


def _release(seen: DownstreamFacts) -> tuple[int, int]:
    """(0, 0) if it does not tell."""
    numbers = re.match(r"(?:5\.5\.5-(?=\d))?(\d+)\.(\d+)", seen.version)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _rights(seen: DownstreamFacts, replicated: Replicated) -> list[Finding]:
    if seen.grants is None:
        return Check("downstream.rights", seen.where).unchecked(
            _NO_GRANT_CHECK,
            "a missing right ends replication at the first statement that needs it",
            "SHOW GRANTS;   # as the drainer's user",
        )
    apart = grants.apart_of(_release(seen) if seen.is_mariadb else None)
    lacking = grants.missing(
        grants.parse(seen.grants), replicated.databases, replicated.checkpoint_schema, apart=apart
    )
    if not lacking:
        return Check("downstream.rights", seen.where).ok(f"{seen.user} has all rights that a drainer needs")
    shown = "; ".join(f"on {_place(place)}: {', '.join(rights)}" for place, rights in lacking.items())
    mend = " ".join(
        f"GRANT {', '.join(rights)} ON {_place(place)} TO {_account(seen.user)};"
        for place, rights in lacking.items()
    )
    everything = [right for rights in lacking.values() for right in rights]
    if grants.is_serious(everything):
        return Check("downstream.rights", seen.where).error(
            f"{seen.user} lacks {shown}",
            "the drainer stops at the first statement that is refused, or cannot make its checkpoint tables",
            mend,
        )
    return Check("downstream.rights", seen.where).warning(
        f"{seen.user} lacks {shown}",
        "some DDL of the upstream will be"
        " refused and its tables will wait; and the drainer cannot see what its own DDL waits for",
        mend,
    )


def _untransactional(seen: DownstreamFacts, replicated: Replicated) -> list[Finding]:
    """Tables that a crash in the middle of a transaction leaves half written."""
    named = replicated.databases
    tables = [table for table in seen.untransactional if named is None or table.schema in named]
    findings = []
    for has_key, consequence in (
        (False, "the drainer refuses their rows: a crash would leave rows twice"),
        (True, "their rows are written in statements that may run twice; readers see half a transaction"),
    ):
        alike = [table for table in tables if table.has_key is has_key]
        if not alike:
            continue
        shown = ", ".join(f"{table.schema}.{table.name} ({table.engine})" for table in alike[:_SHOWN_MAX])
        more = f" and {len(alike) - _SHOWN_MAX} more" if len(alike) > _SHOWN_MAX else ""
        kind = f"with{'' if has_key else 'out'} a key, of engines without transactions"
        first = alike[0]
        findings += Check("downstream.transactions", seen.where).finding(
            Severity.WARNING if has_key or named is None else Severity.ERROR,
            f"tables {kind}: {shown}{more}",
            consequence if named is not None else f"if they are replicated: {consequence}",
            f"ALTER TABLE {_quoted(first.schema)}.{_quoted(first.name)} ENGINE=InnoDB;   -- and so on",
        )
    return findings


def _place(name: str) -> str:
    return "*.*" if name == grants.EVERYWHERE else f"{_quoted(name)}.*"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _account(user: str) -> str:
    name, _, host = user.rpartition("@")
    return f"'{name or host}'@'{host if name else '%'}'"
