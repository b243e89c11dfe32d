"""etcd's release, where etcd is the upstream: whether what it confirmed is there after a crash.

In     members, as they tell their release themselves
Out    findings
Why    without TiDB all that must not be lost but rows stands in etcd: nodes, the clock, schema history and
       what became of transactions. etcd 3.5.0 to 3.5.2 may come back from a crash with other data than the
       other members (mended in 3.5.3); a single member before 3.4.21 or 3.5.5 may lose what it confirmed;
       3.4.22 and 3.5.6 mended what was known of that kind until then
Tests  tests/deploy/binlogctl/doctor/checks/test_etcd_release.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from binlogctl.doctor.facts import MemberFacts
from binlogctl.doctor.findings import Finding, ok, unchecked, warning

LEAST: Final = ((3, 4, 22), (3, 5, 6))
"""The first release of each line that is fit to keep data: none of an older line is, every newer one is."""
DIVERGING: Final = ((3, 5, 0), (3, 5, 2))
LEAST_TEXT: Final = " or ".join(".".join(map(str, one)) for one in LEAST)
_CHECK: Final = "upstream.etcd"
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_MEND: Final = (
    f"install etcd {LEAST_TEXT} or newer, one member after the other (Debian: apt install etcd-server)"
)


def is_fit(release: tuple[int, int, int]) -> bool:
    least = next((one for one in LEAST if one[:2] == release[:2]), LEAST[-1])
    return release >= least


def check_etcd_release(members: Sequence[MemberFacts]) -> list[Finding]:
    """Of those that answer."""
    return [_finding(member) for member in members if member.error is None]


def _finding(member: MemberFacts) -> Finding:
    found = _RELEASE.match(member.version)
    if found is None:
        seen = f"its release {member.version!r} is not known"
        why = "some releases of etcd may lose at a crash what they have confirmed"
        return unchecked(_CHECK, member.url, seen, why, f"see that it is etcd {LEAST_TEXT} or newer")
    major, minor, patch = map(int, found.groups())
    release = (major, minor, patch)
    if is_fit(release):
        return ok(_CHECK, member.url, f"etcd {member.version}")
    if DIVERGING[0] <= release <= DIVERGING[1]:
        why = "etcd 3.5.0 to 3.5.2 may come back from a crash with other data than they confirmed"
    else:
        why = "it may lose at a crash what it has confirmed, a single member above all"
    return warning(_CHECK, member.url, f"etcd {member.version}", why, _MEND)
