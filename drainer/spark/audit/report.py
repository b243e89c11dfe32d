"""Report: the outcome of an audit as one page without scripts.

Out    HTML that needs nothing beside it; `document` has the same facts for programs
Holds  what was not checked stands beside what was found: silence must not be taken for health
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from drainer.spark.audit.auditing import Outcome
from drainer.spark.audit.checks.contents import TableOutcome
from drainer.spark.audit.checks.findings import (
    CHAINS,
    CHECKS,
    CONTENTS,
    COVERAGE,
    Finding,
    Findings,
)
from drainer.spark.audit.document import age_s
from drainer.spark.audit.plots import LAG, duration, plots
from tidb_binlog import tso
from tidb_binlog.page.template import moment, page, table_of
from tidb_binlog.quantities import count, size

_TITLES: Final = {COVERAGE: "Coverage", CHAINS: "Row chains", CONTENTS: "Contents"}
_WIDE: Final = frozenset({"Changes by time and table", "Findings by place", "Compared chunks", LAG})


def html(outcome: Outcome, audited_s: float) -> str:
    """The page."""
    parts = [
        _head(outcome, audited_s),
        _verdict(outcome),
        '<h2>Checks</h2><div class="cards">',
        *(_card(outcome, check) for check in CHECKS),
        "</div>",
        _findings(outcome.findings),
        _plots(outcome),
        _tables(outcome),
        _notes(outcome.findings),
    ]
    return page(f"Audit of {outcome.archive}", parts)


def _head(outcome: Outcome, audited_s: float) -> str:
    figures = outcome.figures
    span = f"{moment(figures.first_ts)} to {moment(figures.last_ts)}"
    lines = [
        f"<h1>Audit of <span class=mono>{escape(outcome.archive)}</span></h1>",
        f'<div class="soft">{escape(outcome.kind)} archive, {count(figures.files, "file")}, '
        f"{size(figures.size)}, commits of {span}</div>",
        f'<div class="soft">audited {moment(tso.from_wall_s(audited_s))}; the newest change was '
        f"{duration(age_s(figures, audited_s))} old"
        + (f"; compared with {escape(outcome.compared_with)}" if outcome.compared_with else "")
        + "</div>",
    ]
    return "".join(lines)


def _verdict(outcome: Outcome) -> str:
    total = sum(findings.total for findings in outcome.findings.values())
    notes = sum(len(findings.notes) for findings in outcome.findings.values())
    limits = f"{count(notes, 'note')} below on what was not or only partly checked." if notes else ""
    if not total:
        missing = [_TITLES[check].lower() for check in CHECKS if check not in outcome.findings]
        also = f" Not asked for: {', '.join(missing)}." if missing else ""
        return (
            '<div class="verdict good">Nothing wrong was found in what was checked'
            f"<p>{limits}{also}</p></div>"
        )
    where = ", ".join(
        f"{count(findings.total, 'finding')} in {_TITLES[check].lower()}"
        for check, findings in outcome.findings.items()
        if findings.total
    )
    return f'<div class="verdict bad">{escape(where)}<p>{limits}</p></div>'


def _card(outcome: Outcome, check: str) -> str:
    findings = outcome.findings.get(check)
    if findings is None:
        return (
            f'<div class="card"><span class="tag">not asked for</span><h3>{_TITLES[check]}</h3>'
            '<span class="soft">Give a database or an image to compare the archive with.</span></div>'
        )
    state, tag = "", "not checked"
    if findings.total:
        state, tag = "wrong", count(findings.total, "finding")
    elif check == COVERAGE or getattr(outcome, check) is not None:
        state, tag = "ok", "nothing wrong"
    lines = "".join(f"<li>{escape(line)}</li>" for line in _checked(outcome, check))
    return (
        f'<div class="card {state}"><span class="tag">{tag}</span><h3>{_TITLES[check]}</h3>'
        f"<ul>{lines}</ul></div>"
    )


def _checked(outcome: Outcome, check: str) -> Iterable[str]:
    figures = outcome.figures
    if check == COVERAGE:
        yield f"{count(figures.files, 'file')}: numbers, framing, checksums, order, counts against indexes"
        yield f"{count(figures.transactions, 'transaction')} with {count(figures.rows, 'row')}"
        yield f"{figures.ddl:,} schema changes"
    elif check == CHAINS and outcome.chains is not None:
        yield f"{count(outcome.chains.links, 'link')} between changes of one row: before equals after"
        yield f"{count(outcome.chains.beginnings, 'row')} followed from their first change"
    elif check == CONTENTS and outcome.contents is not None:
        tables = outcome.contents.tables
        rows = sum(table.states.get("equal", 0) for table in tables)
        yield f"{count(len(tables), 'table')} at {moment(outcome.at_ts)}"
        whole = sum(table.whole for table in tables)
        yield (
            "all their rows" if whole == len(tables) else f"{whole:,} whole, the others in rows that changed"
        )
        yield f"{count(rows, 'row')} equal"
    elif check == CONTENTS:
        yield "no table could be compared"


def _findings(by_check: dict[str, Findings]) -> str:
    listed = [finding for findings in by_check.values() for finding in findings.listed]
    if not listed:
        return ""
    total = sum(findings.total for findings in by_check.values())
    more = f'<p class="soft">{len(listed):,} of {total:,} are listed.</p>' if total > len(listed) else ""
    rows = "".join(map(_finding, listed))
    heads = ("check", "what", "where", "key", "commit time (UTC)", "says", "expected / found")
    return f"<h2>Findings</h2>{more}{table_of(heads, rows)}"


def _finding(finding: Finding) -> str:
    place = (
        f"<br><span class='soft mono file'>{escape(finding.file)} @ {finding.pos}</span>"
        if finding.pos >= 0
        else ""
    )
    when = ""
    if finding.commit_ts:
        when = f"{moment(finding.commit_ts)}<br><span class='soft mono'>{finding.commit_ts}</span>"
    values = ""
    if finding.expected or finding.actual:
        values = (
            f"<span class='want mono'>{escape(finding.expected)}</span><br>"
            f"<span class='have mono'>{escape(finding.actual)}</span>"
        )
    cells = (finding.check, finding.kind, finding.place, finding.key)
    check, kind, where, key = map(escape, cells)
    cells_of_place = f'<td class="place">{where}{place}</td><td class="mono key">{key}</td>'
    return (
        f"<tr><td class=nowrap>{check}</td><td class=nowrap><b>{kind}</b></td>{cells_of_place}"
        f"<td class=nowrap>{when}</td><td>{escape(finding.text)}</td><td>{values}</td></tr>"
    )


def _plots(outcome: Outcome) -> str:
    figures = [
        f"<figure{' class=wide' if title in _WIDE else ''}><figcaption>{escape(title)}</figcaption>"
        f"{svg}</figure>"
        for title, svg in plots(outcome).items()
    ]
    return f'<h2>Pictures</h2><div class="plots">{"".join(figures)}</div>' if figures else ""


def _tables(outcome: Outcome) -> str:
    tables = outcome.contents.tables if outcome.contents else []
    if not tables:
        return ""
    heads = ("table", "extent", "equal", "partly known", "different", "not in the archive", "checksums")
    return f"<h2>Compared tables</h2>{table_of(heads, ''.join(map(_compared, tables)))}"


def _compared(table: TableOutcome) -> str:
    states = table.states
    wrong = sum(number for state, number in states.items() if state in ("differs", "missing", "surplus"))
    numbers = (
        states.get("equal", 0),
        states.get("compared in part", 0),
        wrong,
        states.get("not in the archive", 0),
    )
    cells = "".join(f"<td class=number>{number:,}</td>" for number in numbers)
    same = table.expected_sum == table.actual_sum
    sums = f"{table.expected_sum:016x}" if same else f"{table.expected_sum:016x}<br>{table.actual_sum:016x}"
    extent = "all rows" if table.whole else "rows that changed"
    return (
        f"<tr><td>{escape(table.table)}</td><td>{extent}</td>{cells}"
        f"<td class='mono {'want' if same else 'have'}'>{sums}</td></tr>"
    )


def _notes(by_check: dict[str, Findings]) -> str:
    notes = [note for findings in by_check.values() for note in findings.notes]
    if not notes:
        return ""
    rows = "".join(
        f"<tr><td>{_TITLES[note.check]}</td><td>{escape(note.place)}</td><td>{escape(note.text)}</td></tr>"
        for note in notes
    )
    shown = table_of(("check", "where", "note"), rows)
    return (
        f"<h2>Not checked, and other notes</h2><details{' open' if len(notes) <= 12 else ''}>"
        f"<summary>{count(len(notes), 'note')}</summary>{shown}</details>"
    )
