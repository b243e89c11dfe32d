from __future__ import annotations

import pytest

from binlogctl.doctor.checks.upstream import check_etcd_release
from binlogctl.doctor.facts import MemberFacts


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("3.3.25", "warning"),
        ("3.4.21", "warning"),
        ("3.4.22", "ok"),
        ("3.4.23", "ok"),
        ("3.5.1", "warning"),
        ("3.5.5", "warning"),
        ("3.5.6", "ok"),
        ("3.5.16+git", "ok"),
        ("3.6.0", "ok"),
        ("4.0.0-rc.1", "ok"),
        ("", "unchecked"),
        ("unstable", "unchecked"),
    ],
)
def test_releases(version: str, expected: str) -> None:
    (found,) = check_etcd_release([MemberFacts("http://etcd:2379", True, version=version)])
    assert (found.severity, found.subject) == (expected, "http://etcd:2379")


def test_what_is_wrong_and_what_to_install_are_said() -> None:
    (found,) = check_etcd_release([MemberFacts("http://etcd:2379", True, version="3.5.1")])
    assert found.seen == "etcd 3.5.1"
    assert "3.5.0 to 3.5.2 may come back from a crash with other data" in found.why
    assert "3.4.22 or 3.5.6 or newer" in found.mend


def test_a_member_that_does_not_answer_has_no_release() -> None:
    assert check_etcd_release([MemberFacts("http://etcd:2379", True, error="refused")]) == []
