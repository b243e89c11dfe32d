"""Findings: what an audit says, and what its outcome is as a whole.

Values only. A *finding* is something wrong, with its place. A *note* is something that was not
or not wholly checked, with the reason: it changes no exit code, but the report never leaves it out.

    exit code   0         nothing wrong in what was checked
                16 + sum  1 coverage, 2 chains, 4 contents: which checks found something (17 ... 23)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain
from typing import Any, Final

from tidb_binlog.late_dataclass import asdict, dataclass, field
from tidb_binlog.tso import Ts

COVERAGE: Final = "coverage"
CHAINS: Final = "chains"
CONTENTS: Final = "contents"
CHECKS: Final = (COVERAGE, CHAINS, CONTENTS)
LISTED_MAX: Final = 500

_EXIT_BASE: Final = 16
_EXIT_BITS: Final = {COVERAGE: 1, CHAINS: 2, CONTENTS: 4}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `place`: a file of the archive or a table; `key`: of the row.

    `expected` and `actual` are shown as they are; `pos` is the offset in `file`, -1 for none.
    """

    check: str
    kind: str
    place: str
    text: str
    key: str = ""
    commit_ts: Ts = 0
    file: str = ""
    pos: int = -1
    expected: str = ""
    actual: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was not checked, or is good to know."""

    check: str
    place: str
    text: str


@dataclass(slots=True)
class Findings:
    """Findings of one check: the first `LISTED_MAX` of them, and how many there are of each (kind, place)."""

    listed: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: list[Note] = field(default_factory=list)

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Findings:
        """All are counted; listed are the first in the order of the archive, in whatever order they come."""
        counts: Counter[tuple[str, str]] = Counter()

        def counted() -> Iterator[Finding]:
            for finding in findings:
                counts[finding.kind, finding.place] += 1
                yield finding

        return cls(nsmallest(LISTED_MAX, counted(), key=_archive_order), counts)

    @classmethod
    def merged(cls, parts: Sequence[Findings]) -> Findings:
        """Those of several tasks, as `of` has them."""
        listed = chain.from_iterable(part.listed for part in parts)
        counts = sum((part.counts for part in parts), Counter[tuple[str, str]]())
        return cls(nsmallest(LISTED_MAX, listed, key=_archive_order), counts)

    def take(self, other: Findings) -> None:
        """Those of another one come after these."""
        self.listed = (self.listed + other.listed)[:LISTED_MAX]
        self.counts += other.counts
        self.notes += other.notes

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind, finding.place] += 1
        if len(self.listed) < LISTED_MAX:
            self.listed.append(finding)

    def extend(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.add(finding)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "findings": self.total,
            "listed": [asdict(finding) for finding in self.listed],
            "counts": [
                {"kind": kind, "place": place, "findings": number}
                for (kind, place), number in sorted(self.counts.items())
            ],
            "notes": [asdict(note) for note in self.notes],
        }


def _archive_order(finding: Finding) -> tuple[Ts, str, str, str, int, str, str]:
    return (
        *(finding.commit_ts, finding.place, finding.key, finding.file, finding.pos),
        *(finding.kind, finding.text),
    )


def exit_code(by_check: dict[str, Findings]) -> int:
    """As the module says."""
    bits = sum(_EXIT_BITS[check] for check, findings in by_check.items() if findings.total)
    return _EXIT_BASE + bits if bits else 0
