"""Status: a cluster on one page.

Tests  tests/deploy/binlogctl/cluster/test_in_doubt.py
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, JSON, NOT_WELL, SOON
from binlogctl.cluster import snapshot
from binlogctl.cluster.top_view import COLOURS, between, stacked
from binlogctl.net import connection
from tidb_binlog import time_text
from tidb_binlog.cluster.overview import STAGES, Kept, NodeLine, Overview
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.observe import show
from tidb_binlog.page.way import WORTH_S
from tidb_binlog.quantities import UP_TO_DATE, behind_text, count, span
from tidb_binlog.status.troubles import ERROR, WARNING, Trouble
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

BAR: Final = 40
"""Columns."""
KEPT_SHOWN: Final = 3
"""Drainers of a pump that have a bar: those that it would purge something of first."""
EXIT_CODES: Final = {"": DONE, WARNING: SOON, ERROR: NOT_WELL}
_PUMP: Final = ("pump", "address", "state", "sorted up to", "behind", "doing")
_DRAINER: Final = ("drainer", "address", "state", "applied up to", "behind", "doing")
_CURVES: Final = ("drainer", "behind", "at most", "rows/s", "at most")
_KEPT: Final = ("pump", "drainer", "", "")
_LAG_TITLE: Final = "where the time between upstream and downstream goes"
_LAG: Final = ("drainer", *(name.replace("_", " ") for name in STAGES))


async def run(call: Call) -> int:
    """Print it once."""
    async with connection.cluster(call.settings) as (registry, client):
        seen = await snapshot.take(registry, client, call.settings.tls)
    print_once(seen, call.output)
    return EXIT_CODES[seen.worst]


def print_once(seen: Overview, output: str) -> None:
    """Print an overview as JSON or as tables."""
    if output == JSON:
        show.print_json(snapshot.document(seen))
    else:
        show.console().print(page(seen))


def page(seen: Overview, curves: Sequence[tuple[str, ...]] = (), *, bars: bool | None = None) -> Group:
    """Tables of pumps and drainers, and what is wrong. `bars`: None for those that a terminal has; `curves`:
    of each drainer's past."""
    from rich.console import Group

    if bars is None:
        bars = sys.stdout.isatty() and sys.stdout.encoding.lower().startswith("utf")
    pumps = [_row(line, seen.now_ts) for line in seen.nodes if line.kind == PUMPS]
    drainers = [_row(line, seen.now_ts) for line in seen.nodes if line.kind == DRAINERS]
    lags = [(line.node_id, *map(span, line.stages_s.values())) for line in seen.nodes if line.stages_s]
    parts: list[RenderableType] = [
        show.table(f"{count(len(pumps), 'pump')} at {time_text.local(seen.now_ts)}", _PUMP, pumps),
        show.table(count(len(drainers), "drainer"), _DRAINER, drainers),
    ]
    if lags and bars:
        drawn = [(line.node_id, _bar(line.stages_s)) for line in seen.nodes if line.stages_s]
        parts.append(show.table(_LAG_TITLE, ("drainer", ""), drawn))
    elif lags:
        parts.append(show.table(_LAG_TITLE, _LAG, lags))
    kept = [(line.node_id, *_place(kept)) for line in seen.nodes for kept in line.kept[:KEPT_SHOWN]]
    if kept and bars:
        parts.append(show.table("from what pumps have purged (left) to now (right)", _KEPT, kept))
    if curves:
        parts.append(show.table("since this began", _CURVES, curves))
    if not seen.troubles:
        parts.append(show.text("all is well", style="green"))
    parts += [
        show.text(_trouble_line(trouble), style="red" if trouble.severity == ERROR else "yellow")
        for trouble in seen.troubles
    ]
    return Group(*parts)


def _bar(stages_s: Mapping[str, float]) -> Text:
    """How long each stage takes, as a bar of all and in words."""
    colours = dict(zip(STAGES, COLOURS, strict=True))
    # Of a Drainer that is up to date a whole bar would say that something takes long.
    drawn = stacked(stages_s, BAR) if sum(stages_s.values()) >= WORTH_S else []
    pieces = [("█" * columns, colours[name]) for name, columns in drawn]
    words = [
        (f" {name.replace('_', ' ')} {span(took_s)}", colours[name]) for name, took_s in stages_s.items()
    ]
    return show.coloured(*pieces, *words)


def _place(kept: Kept) -> tuple[str, str, str]:
    near = f"{span(kept.left_s)} until a purge reaches it"
    return kept.node_id, between(kept.left_s, kept.behind_s, BAR), f"{near}, {behind_text(kept.behind_s)}"


def _trouble_line(trouble: Trouble) -> str:
    hint = f" ({trouble.hint})" if trouble.hint else ""
    return f"{trouble.severity}: {trouble.node} {trouble.text}{hint}"


def _row(line: NodeLine, now_ts: Ts) -> list[str]:
    behind = "" if line.behind_s is None else span(line.behind_s) if line.behind_s else UP_TO_DATE
    position = _position(line.position_ts, now_ts) if line.position_ts else ""
    name = f"{line.node_id} (reader)" if line.reader else line.node_id
    return [name, line.address, line.state_text, position, behind, line.doing]


def _position(ts: Ts, now_ts: Ts) -> str:
    """Its time, with the date if that is not today's."""
    day, time, _ = time_text.local(ts).split()
    return time if day == time_text.local(now_ts).split()[0] else f"{day} {time}"


def lines(seen: Overview) -> list[str]:
    """The same as plain lines."""
    texts = []
    for line in seen.nodes:
        behind = "position unknown" if line.behind_s is None else behind_text(line.behind_s)
        stages = " ".join(f"{name}={value:.1f}s" for name, value in line.stages_s.items())
        answers = "" if line.answers else ", does not answer"
        role = "reader" if line.reader else line.kind[:-1]
        parts = (f"{role} {line.node_id}: {line.state}{answers}", behind, stages, line.doing)
        texts.append(", ".join(part for part in parts if part))
    return texts + [_trouble_line(trouble) for trouble in seen.troubles]
