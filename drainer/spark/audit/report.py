"""Report: the outcome of an audit as one page without scripts, and as JSON.

In     an outcome, the time of the audit
Out    HTML that needs nothing beside it; a document for programs with the same facts
Holds  what was not checked stands beside what was found: silence must not be taken for health
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from typing import Any, Final

from common import time_text, tso
from drainer.spark.audit.auditing import Outcome
from drainer.spark.audit.checks.contents import TableOutcome
from drainer.spark.audit.checks.figures import Figures
from drainer.spark.audit.checks.findings import (
    CHAINS,
    CHECKS,
    CONTENTS,
    COVERAGE,
    Finding,
    Findings,
    exit_code,
)
from drainer.spark.audit.plots import LAG, duration, plots

_STYLE: Final = """
:root{--ink:#1d2630;--soft:#5b6875;--line:#dfe4e9;--back:#f5f7f9;--good:#2c7d52;--bad:#b3261e;--part:#946200}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:22px;margin:0 0 2px}h2{font-size:17px;margin:34px 0 10px}
.soft{color:var(--soft)}.mono{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px}
.verdict{border-radius:10px;padding:16px 20px;margin:18px 0;color:#fff;font-size:19px;font-weight:600}
.verdict p{margin:4px 0 0;font-size:14px;font-weight:400;opacity:.95}
.good{background:var(--good)}.bad{background:var(--bad)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:14px}
.card,figure,table,details{background:#fff;border:1px solid var(--line);border-radius:10px}
.card{padding:14px 16px;border-top:4px solid var(--line)}
.card.ok{border-top-color:var(--good)}.card.wrong{border-top-color:var(--bad)}
.card h3{margin:0 0 6px;font-size:15px}.card ul{margin:0;padding-left:18px}
.tag{float:right;font-size:12px;font-weight:600;padding:1px 9px;border-radius:10px;background:var(--back)}
.ok .tag{color:var(--good)}.wrong .tag{color:var(--bad)}
.plots{display:flex;flex-wrap:wrap;gap:14px}figure{margin:0;padding:12px 14px;flex:1 1 420px}
figure.wide{flex-basis:100%}figure svg{width:100%;height:auto}
figure svg text{font-family:system-ui,"Segoe UI",Roboto,sans-serif!important}
figcaption{font-weight:600;font-size:14px;margin-bottom:6px}
.scroll{overflow-x:auto}table{border-collapse:separate;border-spacing:0;width:100%;font-size:13.5px}
td.key{min-width:9em}td.place{min-width:13em}.file{font-size:11.5px}
th,td{text-align:left;padding:7px 10px;border-bottom:1px solid var(--line);vertical-align:top}
th{font-size:12px;color:var(--soft);font-weight:600;white-space:nowrap}tr:last-child td{border-bottom:0}
td.number{text-align:right;font-variant-numeric:tabular-nums}td{overflow-wrap:anywhere}
td.nowrap{white-space:nowrap}td .want{color:var(--good)}td .have{color:var(--bad)}
details{padding:10px 16px}summary{cursor:pointer;font-weight:600}
@media print{body{background:#fff}main{max-width:none}}
"""
_TITLES: Final = {COVERAGE: "Coverage", CHAINS: "Row chains", CONTENTS: "Contents"}
_WIDE: Final = frozenset({"Changes by time and table", "Findings by place", "Compared chunks", LAG})


def document(outcome: Outcome, audited_s: float) -> dict[str, Any]:
    """The same for programs."""
    figures = outcome.figures
    found: dict[str, Any] = {
        "archive": outcome.archive,
        "kind": outcome.kind,
        "audited": time_text.utc(tso.from_wall_s(audited_s)),
        "exit_code": exit_code(outcome.findings),
        "at": outcome.at_ts,
        "compared_with": outcome.compared_with,
        "first_commit_ts": figures.first_ts,
        "last_commit_ts": figures.last_ts,
        "files": figures.files,
        "bytes": figures.size,
        "transactions": figures.transactions,
        "ddl": figures.ddl,
        "rows": figures.rows,
        "checks": {check: findings.to_json() for check, findings in outcome.findings.items()},
        "age_s": _age_s(figures, audited_s),
        "lags": [asdict(one) for one in figures.lags],
        "changes": [asdict(one) for one in figures.changes],
        "rows_per_transaction": _powers(figures.rows_per_transaction),
        "bytes_per_transaction": _powers(figures.bytes_per_transaction),
    }
    if outcome.chains is not None:
        found["links"] = outcome.chains.links
        found["beginnings"] = outcome.chains.beginnings
    if outcome.contents is not None:
        found["tables"] = [
            {
                **asdict(table),
                "expected_sum": f"{table.expected_sum:016x}",
                "actual_sum": f"{table.actual_sum:016x}",
            }
            for table in outcome.contents.tables
        ]
    return found


def _powers(counts: dict[int, int]) -> list[dict[str, int]]:
    """Numbers of transactions by the largest size that is counted there."""
    return [{"up_to": 1 << power, "transactions": number} for power, number in sorted(counts.items())]


def html(outcome: Outcome, audited_s: float) -> str:
    """The page."""
    parts = [
        _head(outcome, audited_s),
        _verdict(outcome),
        '<div class="cards">',
        *(_card(outcome, check) for check in CHECKS),
        "</div>",
        _findings(outcome.findings),
        _plots(outcome),
        _tables(outcome),
        _notes(outcome.findings),
    ]
    title = escape(f"Audit of {outcome.archive}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _time(ts: int) -> str:
    return time_text.utc(ts) if ts else "-"


def _head(outcome: Outcome, audited_s: float) -> str:
    figures = outcome.figures
    span = f"{_time(figures.first_ts)} to {_time(figures.last_ts)}"
    lines = [
        f"<h1>Audit of <span class=mono>{escape(outcome.archive)}</span></h1>",
        f'<div class="soft">{escape(outcome.kind)} archive, {_count(figures.files, "file")}, '
        f"{_size(figures.size)}, commits of {span}</div>",
        f'<div class="soft">audited {_time(tso.from_wall_s(audited_s))}; the newest change was '
        f"{duration(_age_s(figures, audited_s))} old"
        + (f"; compared with {escape(outcome.compared_with)}" if outcome.compared_with else "")
        + "</div>",
    ]
    return "".join(lines)


def _age_s(figures: Figures, audited_s: float) -> int:
    return max(0, int(tso.age_s(figures.last_ts, audited_s))) if figures.last_ts else 0


def _size(size: int) -> str:
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def _verdict(outcome: Outcome) -> str:
    total = sum(found.total for found in outcome.findings.values())
    notes = sum(len(found.notes) for found in outcome.findings.values())
    limits = f"{_count(notes, 'note')} below on what was not or only partly checked." if notes else ""
    if not total:
        missing = [_TITLES[check].lower() for check in CHECKS if check not in outcome.findings]
        also = f" Not asked for: {', '.join(missing)}." if missing else ""
        return (
            '<div class="verdict good">Nothing wrong was found in what was checked'
            f"<p>{limits}{also}</p></div>"
        )
    where = ", ".join(
        f"{_count(found.total, 'finding')} in {_TITLES[check].lower()}"
        for check, found in outcome.findings.items()
        if found.total
    )
    return f'<div class="verdict bad">{escape(where)}<p>{limits}</p></div>'


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _card(outcome: Outcome, check: str) -> str:
    found = outcome.findings.get(check)
    if found is None:
        return (
            f'<div class="card"><span class="tag">not asked for</span><h3>{_TITLES[check]}</h3>'
            '<span class="soft">Give a database or an image to compare the archive with.</span></div>'
        )
    state, tag = "", "not checked"
    if found.total:
        state, tag = "wrong", _count(found.total, "finding")
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
        yield f"{_count(figures.files, 'file')}: numbers, framing, checksums, order, counts against indexes"
        yield f"{_count(figures.transactions, 'transaction')} with {_count(figures.rows, 'row')}"
        yield f"{figures.ddl:,} schema changes"
    elif check == CHAINS and outcome.chains is not None:
        yield f"{_count(outcome.chains.links, 'link')} between changes of one row: before equals after"
        yield f"{_count(outcome.chains.beginnings, 'row')} followed from their first change"
    elif check == CONTENTS and outcome.contents is not None:
        tables = outcome.contents.tables
        rows = sum(one.states.get("equal", 0) for one in tables)
        yield f"{_count(len(tables), 'table')} at {_time(outcome.at_ts)}"
        whole = sum(one.whole for one in tables)
        yield (
            "all their rows" if whole == len(tables) else f"{whole:,} whole, the others in rows that changed"
        )
        yield f"{_count(rows, 'row')} equal"
    elif check == CONTENTS:
        yield "no table could be compared"


def _findings(by_check: dict[str, Findings]) -> str:
    listed = [one for found in by_check.values() for one in found.listed]
    if not listed:
        return ""
    total = sum(found.total for found in by_check.values())
    more = f'<p class="soft">{len(listed):,} of {total:,} are listed.</p>' if total > len(listed) else ""
    rows = "".join(map(_finding, listed))
    heads = ("check", "what", "where", "key", "commit time (UTC)", "says", "expected / found")
    return f"<h2>Findings</h2>{more}{_table(heads, rows)}"


def _finding(one: Finding) -> str:
    place = f"<br><span class='soft mono file'>{escape(one.file)} @ {one.pos}</span>" if one.pos >= 0 else ""
    when = ""
    if one.commit_ts:
        when = f"{_time(one.commit_ts)}<br><span class='soft mono'>{one.commit_ts}</span>"
    values = ""
    if one.expected or one.actual:
        values = (
            f"<span class='want mono'>{escape(one.expected)}</span><br>"
            f"<span class='have mono'>{escape(one.actual)}</span>"
        )
    cells = (one.check, one.kind, one.place, one.key)
    check, kind, where, key = map(escape, cells)
    cells_of_place = f'<td class="place">{where}{place}</td><td class="mono key">{key}</td>'
    return (
        f"<tr><td class=nowrap>{check}</td><td class=nowrap><b>{kind}</b></td>{cells_of_place}"
        f"<td class=nowrap>{when}</td><td>{escape(one.text)}</td><td>{values}</td></tr>"
    )


def _table(heads: Sequence[str], rows: str) -> str:
    cells = "".join(f"<th>{head}</th>" for head in heads)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>'


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
    return f"<h2>Compared tables</h2>{_table(heads, ''.join(map(_compared, tables)))}"


def _compared(one: TableOutcome) -> str:
    states = one.states
    wrong = sum(number for state, number in states.items() if state in ("differs", "missing", "surplus"))
    numbers = (
        states.get("equal", 0),
        states.get("compared in part", 0),
        wrong,
        states.get("not in the archive", 0),
    )
    cells = "".join(f"<td class=number>{number:,}</td>" for number in numbers)
    same = one.expected_sum == one.actual_sum
    sums = f"{one.expected_sum:016x}" if same else f"{one.expected_sum:016x}<br>{one.actual_sum:016x}"
    extent = "all rows" if one.whole else "rows that changed"
    return (
        f"<tr><td>{escape(one.table)}</td><td>{extent}</td>{cells}"
        f"<td class='mono {'want' if same else 'have'}'>{sums}</td></tr>"
    )


def _notes(by_check: dict[str, Findings]) -> str:
    notes = [one for found in by_check.values() for one in found.notes]
    if not notes:
        return ""
    rows = "".join(
        f"<tr><td>{_TITLES[one.check]}</td><td>{escape(one.place)}</td><td>{escape(one.text)}</td></tr>"
        for one in notes
    )
    table = _table(("check", "where", "note"), rows)
    return (
        f"<h2>Not checked, and other notes</h2><details{' open' if len(notes) <= 12 else ''}>"
        f"<summary>{_count(len(notes), 'note')}</summary>{table}</details>"
    )
