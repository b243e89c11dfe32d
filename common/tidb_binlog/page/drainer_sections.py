"""Drainer sections: what the page of a drainer shows of it.

Out    headline, facts, the way of the stream with its lag, what waits for a decision, lanes, pumps, verify
Holds  a decision is a command to copy: a page changes nothing
Tests  tests/common/page/test_sections.py
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from tidb_binlog.page.markup import (
    NOTHING,
    ROWS_MAX,
    Markup,
    command,
    element,
    facts,
    first,
    join,
    place,
    table,
    wall,
)
from tidb_binlog.page.way import Stage, picture
from tidb_binlog.quantities import count, size, span
from tidb_binlog.status.drainer import (
    ChunkGrid,
    DdlStatus,
    DrainerDocument,
    LagStatus,
    LaneStatus,
    LoadedTable,
    LoadStatus,
    MismatchStatus,
    SourceStatus,
    VerifyStatus,
    WaitingDdl,
)

_LANES: Final = ("lane", "queued", "state", "tries")
_PUMPS: Final = ("pump", "state", "position", "behind", "held", "says")
_REWRITE: Final = "rewrite"


def headline(document: DrainerDocument) -> str:
    """What it does while nothing is wrong."""
    if not document.lag:
        return document.doing or f"This drainer is {document.state}"
    if not document.lag.behind_s:
        return "Up to date with the upstream"
    eta_s = document.lag.eta_s
    soon = f"; caught up in about {span(eta_s)}" if eta_s else ""
    return f"{span(document.lag.total_s)} behind the upstream{soon}"


def sections(document: DrainerDocument) -> Iterator[tuple[str, Markup]]:
    """Titles and what stands below them."""
    yield "Now", facts(_facts(document))
    if document.lag:
        yield "Way of the stream", _way(document.lag)
    if document.ddl:
        yield (
            f"Waiting for a decision ({len(document.ddl.waiting):,})",
            _waiting(document.ddl, document.node_id),
        )
    if document.load:
        yield "Load", load(document.load)
    if document.lanes:
        yield f"Lanes ({len(document.lanes):,})", _lanes(document.lanes)
    if document.pumps:
        yield f"Streams of pumps ({len(document.pumps):,})", _pumps(document.pumps)
    yield "Retention", _retention(document)
    yield "Last verify", _verify(document.verify or None)
    if document.drift and (document.drift.rows or document.drift.texts):
        yield "Rows that were not as they should be", _mismatches(document.drift)
    if document.went_back:
        rows = ((wall(entry.time), entry.why) for entry in reversed(document.went_back))
        content = table("The downstream went back", ("time", "why"), rows, len(document.went_back))
        yield "The downstream went back", content


def _facts(document: DrainerDocument) -> Iterator[tuple[str, object]]:
    yield "applied up to", place(document.applied_ts or 0)
    yield "checkpoint", place(document.last_ts)
    if document.doing:
        yield "doing", document.doing
    if document.waits_for:
        yield "waits for", document.waits_for
    if lag := document.lag:
        yield "speed", f"{lag.rows_per_s:,.0f} rows/s, {lag.transactions_per_s:,.0f} transactions/s"
        yield "since the start", f"{document.rows or 0:,} rows, {document.transactions or 0:,} transactions"
    if document.control:
        control = document.control
        limits = [f"{control.rate_rows:,} rows/s"] if control.rate_rows else []
        limits += [f"{size(control.rate_bytes)}/s"] if control.rate_bytes else []
        yield "rate limit", " and ".join(limits) or "none"
    if standby := document.standby:
        yield "standing by for", span(standby.waiting_s)
        if standby.trouble:
            yield "a takeover would fail", element("span", standby.trouble, class_="wrong")


def _way(lag: LagStatus) -> Markup:
    """The stages of `drainer.operate.status.lag`."""
    where = f"at pump {lag.pump}" if lag.pump else "at the pumps"
    stages = (
        Stage("Write", lag.write_s, where),
        Stage("Index and sort", lag.sort_wait_s, "an open transaction" if lag.start_ts else "at the pumps"),
        Stage("Pull", lag.pull_s, "on the way to here"),
        Stage("Merge, translate", lag.queue_s, "queue before the lanes"),
        Stage("Apply", lag.apply_s, "lanes, downstream"),
    )
    reason = element("p", "Held up by: ", lag.reason) if lag.reason else ""
    return join(picture(stages, f"Where the lag of {span(lag.total_s)} comes from"), reason)


# -- waiting DDL ---------------------------------------------------------------------------------------------


def _waiting(ddl: DdlStatus, node_id: str) -> Markup:
    said = [f"runs now: {ddl.progress}"] if ddl.progress else []
    said += [f"missing downstream {lack}" for lack in reversed(ddl.missing[-ROWS_MAX:])]
    parts: list[object] = [element("p", line) for line in said]
    if ddl.full:
        parts.append(
            element("p", "The disk for what waits is full: the stream stands still.", class_="wrong")
        )
    if not ddl.waiting:
        return join(*parts, element("p", "No DDL waits.", class_="soft"))
    shown = first(_one(waiting, node_id) for waiting in ddl.waiting)
    parts += shown
    if left := len(ddl.waiting) - len(shown):
        parts.append(element("p", f"{left:,} more: ", command(f"binlogctl ddl list {_node(node_id)}")))
    held = f"The checkpoint stays at {ddl.held_at}; {size(ddl.kept_bytes)} of rows are kept."
    return join(*parts, element("p", held, class_="soft"))


def _one(waiting: WaitingDdl, node_id: str) -> Markup:
    tables = ", ".join(waiting.tables[:ROWS_MAX])
    pairs: list[tuple[str, object]] = [
        ("tables", tables),
        ("state", waiting.state),
        ("commit", place(waiting.commit_ts)),
        ("waits since", wall(waiting.since_ms / 1000)),
        ("rows kept", size(waiting.kept_bytes)),
    ]
    if waiting.decision:
        pairs.append(("decided", join(waiting.decision, f": {waiting.text}" if waiting.text else "")))
    lines = [command(line) for line in commands(waiting, node_id)]
    shown = (
        join(
            element("p", "Possible decisions; copy the one you want:"),
            element("ul", *(element("li", line) for line in lines), class_="commands"),
        )
        if lines
        else element("p", "Nothing is to be decided now.", class_="soft")
    )
    return element(
        "article",
        element("h3", f"Job {waiting.job_id}"),
        element("pre", waiting.query, tabindex="0") if waiting.query else "",
        element("p", waiting.reason) if waiting.reason else "",
        facts(pairs),
        shown,
        class_="card wrong" if lines else "card",
    )


def commands(waiting: WaitingDdl, node_id: str) -> list[str]:
    """What decides about it, a line for each decision that makes sense now."""
    return [
        f"binlogctl ddl {decision} {waiting.job_id}{_TEXT if decision == _REWRITE else ''} {_node(node_id)}"
        for decision in waiting.possible
    ]


_TEXT: Final = " --text 'ALTER TABLE ...'"


def _node(node_id: str) -> str:
    return f"--node-id={shlex.quote(node_id)}"


# -- lanes, pumps, verify ------------------------------------------------------------------------------------


def _lanes(lanes: list[LaneStatus]) -> Markup:
    """Those that wait first, then the fullest."""
    full = sum(lane.full for lane in lanes)
    waiting = sum(bool(lane.waiting_for) for lane in lanes)
    said = (
        f"{waiting:,} wait, {full:,} are full, {size(sum(lane.queued_bytes for lane in lanes))} are queued."
    )
    worst = sorted(lanes, key=lambda lane: (not lane.waiting_for, -lane.queued_bytes, lane.lane))
    rows = (
        (
            lane.lane,
            size(lane.queued_bytes) + (" (full)" if lane.full else ""),
            _lane_state(lane),
            lane.tries or NOTHING,
        )
        for lane in worst
    )
    return join(element("p", said, class_="soft"), table("Lanes", _LANES, rows, len(lanes)))


def _lane_state(lane: LaneStatus) -> object:
    if not lane.waiting_for:
        return "works" if lane.queued_bytes else "has nothing to do"
    since = f", for {span(lane.waiting_s)}" if lane.waiting_s else ""
    return element("span", f"waits: {lane.waiting_for}{since}", class_="wrong")


def _pumps(pumps: dict[str, SourceStatus]) -> Markup:
    """Those that hold the stream or are away first."""
    worst = sorted(pumps.items(), key=lambda pair: (not pair[1].holds, pair[1].connected, pair[0]))
    rows = (
        (
            node_id,
            pump.state if pump.connected else element("span", "not connected", class_="wrong"),
            place(pump.position),
            span(pump.lag_s),
            size(pump.held_bytes + pump.spilled_bytes),
            "; ".join(filter(None, ("holds the stream" if pump.holds else "", pump.error))) or NOTHING,
        )
        for node_id, pump in worst
    )
    return table("Streams of pumps", _PUMPS, rows, len(pumps))


def _retention(document: DrainerDocument) -> Markup:
    said = "Pumps keep what lies above the checkpoint as long as they can; each pump's page says how long."
    pairs: list[tuple[str, object]] = [("checkpoint", place(document.last_ts))]
    if document.ddl and document.ddl.held_at:
        pairs.append(("held by a waiting DDL at", place(document.ddl.held_at)))
    if document.relay:
        relay = document.relay
        shown = "none" if not relay.on else f"waits: {relay.waiting_for}" if relay.waiting_for else "on"
        pairs.append(("relay log", shown))
    if document.archive:
        pairs.append(("last in the archive", place(document.archive.last_commit_ts)))
        if document.archive.waiting_for:
            pairs.append(("the archive waits for", document.archive.waiting_for))
    return join(facts(pairs), element("p", said, class_="soft"))


def _verify(verify: VerifyStatus | None) -> Markup:
    if verify is None:
        said = "This drainer compares nothing by itself (verify-every). To compare now: "
        return element("p", said, command("binlogctl verify --drainer-config drainer.toml"), class_="soft")
    pairs: list[tuple[str, object]] = []
    if verify.state:
        state = element("span", verify.state, class_="wrong" if verify.wrong else "right")
        pairs += [
            ("result", state),
            ("at", place(verify.ts)),
            ("ended", wall(verify.ended_s)),
            ("compared", f"{count(verify.rows, 'row')} of {count(verify.tables, 'table')}"),
            ("held the stream for", f"{verify.held_ms:.1f} ms"),
        ]
    else:
        pairs.append(("result", "none yet"))
    if verify.running_since_s:
        pairs.append(("runs since", f"{wall(verify.running_since_s)} {verify.progress}"))
    running = grids(verify.grid) if verify.running_since_s and verify.grid else ""
    if verify.next_s:
        pairs.append(("next", wall(verify.next_s)))
    if verify.failures:
        tries = count(verify.failures, "time")
        pairs.append(("did not come to an end", f"{tries}: {verify.trouble}"))
    wrong = ((name, f"{rows:,}") for name, rows in verify.wrong_rows.items())
    left_out = verify.not_compared.items()
    return join(
        facts(pairs),
        running,
        table("Rows that differ", ("table", "rows that differ"), wrong, len(verify.wrong_rows))
        if verify.wrong_rows
        else "",
        table("Not compared", ("table", "why it was not compared"), left_out, verify.left_out)
        if left_out
        else "",
    )


def _mismatches(mismatches: MismatchStatus) -> Markup:
    rows = [
        (name, f"{number:,} rows were not there, or there already")
        for name, number in mismatches.rows.items()
    ]
    rows += [
        (name, f"{number:,} values of {column} were no text")
        for name, columns in mismatches.texts.items()
        for column, number in columns.items()
    ]
    return table("Rows that were not as they should be", ("table", "what"), rows, len(rows))


# Progress: a comparison as a grid of chunks, a load as a bar for each table.

STYLE: Final = """
.steps{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(330px,100%),1fr));gap:14px;
margin:10px 0;align-items:start}
.steps figcaption{overflow-wrap:anywhere}.steps p{font-size:12px;margin:6px 0 0}.steps svg{display:block}
.steps .whole{fill:var(--line)}.steps .bar{fill:var(--link)}.steps .done{fill:var(--good)}
.steps .equal{fill:var(--good)}.steps .differs{fill:var(--bad)}.steps .left{fill:var(--line)}
"""
_COLUMNS: Final = 25
_STATES: Final = {"=": "equal", "!": "differs", ".": "left"}


def grids(tables: Sequence[ChunkGrid]) -> Markup:
    return element("div", *first(map(_grid, tables)), class_="steps")


def _grid(table: ChunkGrid) -> Markup:
    """A square is a chunk, or several; their numbers are of squares."""
    lines = -(-len(table.cells) // _COLUMNS)
    numbers = [f"{name} {table.cells.count(state):,}" for state, name in _STATES.items()]
    wrong = table.cells.count("!")
    each = -(-table.chunks // len(table.cells)) if table.cells else 1
    squares = f"{count(table.chunks, 'chunk')}{'' if table.is_cut else ' so far'}"
    if each > 1:
        squares += f", {each:,} a square"
    rows = f"{table.rows:,} rows" + (f" of about {table.rows_expected:,}" if table.rows_expected else "")
    return element(
        "figure",
        element("figcaption", table.table),
        element(
            "svg",
            *(
                element("path", d=_squares(table.cells, state), class_=name)
                for state, name in _STATES.items()
            ),
            viewBox=f"0 0 {_COLUMNS} {max(lines, 2)}",
            role="img",
            aria_label=f"{table.table}: {squares}: {', '.join(numbers)}",
        ),
        element("p", f"{squares}; {rows}", class_="soft"),
        element("p", element("span", f"{wrong:,} to be looked at again", class_="wrong")) if wrong else "",
    )


def _squares(cells: str, state: str) -> Markup:
    """One path for all of a state. Of any length: numbers alone are in it."""
    places = (at for at, cell in enumerate(cells) if cell == state)
    return Markup("".join(f"M{at % _COLUMNS} {at // _COLUMNS}h.85v.85h-.85z" for at in places))


def load(load: LoadStatus) -> Markup:
    """All rows, then each table."""
    at = join(", at ", place(load.ts)) if load.ts else ""
    expected = f" of about {load.rows_expected:,}" if load.rows_expected else ""
    said = element(
        "p", f"{load.stage}: {load.rows:,} rows{expected}", at, f". {load.note}" if load.note else ""
    )
    bars = first(map(_bar, load.tables))
    left = load.table_count - len(bars)
    more = element("p", f"{count(left, 'more table')}, done or not begun.", class_="soft") if left > 0 else ""
    return join(said, element("div", *bars, class_="steps"), more)


def _bar(table: LoadedTable) -> Markup:
    share = 1.0 if table.done else min(1.0, table.rows / table.rows_expected) if table.rows_expected else 0.0
    about = f" of about {table.rows_expected:,}" if table.rows_expected and not table.done else ""
    words = f"{table.rows:,} rows{about}{', done' if table.done else ''}"
    return element(
        "figure",
        element("figcaption", table.table),
        element(
            "svg",
            element("rect", width=100, height=4, class_="whole"),
            element("rect", width=f"{100 * share:.1f}", height=4, class_="done" if table.done else "bar"),
            viewBox="0 0 100 4",
            height=10,
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{table.table}: {words}",
        ),
        element("p", words, class_="soft"),
    )
