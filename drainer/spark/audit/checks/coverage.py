"""Coverage: is the archive whole, and are its records in order?

Out    findings: files missing or twice, damaged bytes, records doubled, out of order, more or fewer than the
       index beside the file says
Holds  a torn tail of the newest file is what a killed writer leaves: a note. The same elsewhere is damage
Why    a dropped record leaves no trace in framing; the index beside a segment counts what was written, and
       row chains (`chains`) see what was lost with it
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from drainer.spark.audit.checks.findings import COVERAGE, Finding, Findings, Note
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

MISPLACED_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class File:
    """One file of the archive. `counted`: transactions, DDL and rows that its records hold; `described`: the
    same by the index beside it, None without one (or where it does not cover the file)."""

    name: str
    index: int
    size: int
    first_ts: Ts = 0
    last_ts: Ts = 0
    torn_bytes: int = 0
    problem: str = ""
    problem_pos: int = -1
    counted: tuple[int, int, int] = (0, 0, 0)
    described: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A record whose commit_ts is not above all that came before it in the archive's order.

    `before`: the largest commit_ts before it.
    """

    file: str
    pos: int
    commit_ts: Ts
    before: int


def check_files(files: Sequence[File]) -> Findings:
    """What the files alone tell."""
    findings = Findings()
    ordered = sorted(files, key=lambda file: (file.index, file.name))
    findings.extend(_numbers(ordered))
    newest = ordered[-1].name if ordered else ""
    for file in ordered:
        findings.extend(_damage(file))
        if file.torn_bytes and file.name == newest:
            text = f"its last {file.torn_bytes} bytes are the beginning of a record; its writer may continue"
            findings.notes.append(Note(COVERAGE, file.name, text))
        elif file.torn_bytes:
            findings.add(
                Finding(
                    COVERAGE,
                    "damaged bytes",
                    file.name,
                    f"its last {file.torn_bytes} bytes are no record, and a newer file exists",
                    file=file.name,
                    pos=file.size - file.torn_bytes,
                )
            )
        findings.extend(_described(file))
    return findings


def _numbers(files: Sequence[File]) -> Iterable[Finding]:
    for before, after in pairwise(files):
        if after.index == before.index:
            text = f"{before.name} has the same number"
            yield Finding(COVERAGE, "doubled file", after.name, text, file=after.name)
        elif after.index > before.index + 1:
            first, last = before.index + 1, after.index - 1
            which = f"file {first} is" if first == last else f"files {first} to {last} are"
            text = f"{which} missing between {before.name} and {after.name}"
            if before.last_ts and after.first_ts:
                text += f": what was committed after {before.last_ts} and before {after.first_ts} is unknown"
            yield Finding(COVERAGE, "missing file", after.name, text, commit_ts=before.last_ts)


def _damage(file: File) -> Iterable[Finding]:
    if file.problem:
        yield Finding(
            COVERAGE, "damaged bytes", file.name, file.problem, file=file.name, pos=file.problem_pos
        )


def _described(file: File) -> Iterable[Finding]:
    if file.described is None or file.problem or file.described == file.counted:
        return
    words = ("transactions", "DDL", "rows")
    parts = [
        f"{has} {word} instead of {had}"
        for word, has, had in zip(words, file.counted, file.described, strict=True)
        if has != had
    ]
    text = f"it holds {', '.join(parts)} that its index counted when they were written"
    yield Finding(COVERAGE, "other contents", file.name, text, file=file.name)


def check_order(misplaced: Iterable[Misplaced], places: dict[int, list[tuple[str, int]]]) -> Findings:
    """`places`: (file, position) of all records that have the commit_ts of a misplaced one."""
    findings = Findings()
    by_ts: defaultdict[int, list[Misplaced]] = defaultdict(list)
    for record in misplaced:
        by_ts[record.commit_ts].append(record)
    for commit_ts, records in sorted(by_ts.items()):
        twins = places.get(commit_ts, [])
        for record in records:
            others = [place for place in twins if place != (record.file, record.pos)]
            if others:
                file, pos = others[0]
                kind, text = "doubled record", f"the record at {file} {pos} has the same commit_ts"
            else:
                kind, text = "swapped order", f"it comes after a record with commit_ts {record.before}"
            findings.add(Finding(COVERAGE, kind, record.file, text, "", commit_ts, record.file, record.pos))
    return findings


@dataclass(slots=True)
class RecordRun:
    """Consecutive records of one file, as one task saw them: what is left to compare with its neighbours.

    `misplaced`: no more than the first `MISPLACED_MAX`."""

    file: str
    pos: int
    first_ts: Ts
    max_ts: Ts
    misplaced: list[Misplaced]
    first_is_ddl: bool = False
    max_is_ddl: bool = False


class OrderWatch:
    """Checks the records of one run in their order."""

    def __init__(self) -> None:
        self.run: RecordRun | None = None

    def see(self, file: str, pos: int, commit_ts: Ts, *, is_ddl: bool) -> None:
        """The next record. Statements of one DDL have one commit_ts, next to each other."""
        run = self.run
        if run is None:
            self.run = RecordRun(file, pos, commit_ts, commit_ts, [], is_ddl, is_ddl)
        elif commit_ts > run.max_ts:
            run.max_ts, run.max_is_ddl = commit_ts, is_ddl
        elif (commit_ts < run.max_ts or not (is_ddl and run.max_is_ddl)) and (
            len(run.misplaced) < MISPLACED_MAX
        ):
            run.misplaced.append(Misplaced(file, pos, commit_ts, run.max_ts))


def join_runs(runs: Iterable[tuple[int, RecordRun]]) -> list[Misplaced]:
    """All misplaced records of an archive; `runs` with the number of their file, in any order."""
    misplaced: list[Misplaced] = []
    max_ts, is_ddl = -1, False
    for _, run in sorted(runs, key=lambda numbered: (numbered[0], numbered[1].file, numbered[1].pos)):
        is_late = run.first_ts < max_ts or (run.first_ts == max_ts and not (run.first_is_ddl and is_ddl))
        if is_late:
            misplaced.append(Misplaced(run.file, run.pos, run.first_ts, max_ts))
        misplaced += run.misplaced
        if run.max_ts >= max_ts:
            max_ts, is_ddl = run.max_ts, run.max_is_ddl
    return misplaced
