"""Status page: what a node shows at `GET /`: the facts of its /status for people.

Out    HTML of bounded size, whatever is in the documents, and the headers with which it is given
Holds  every text comes in through `markup.text`; nothing on the page changes a node: it has neither a form
       nor a request but that for itself
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidb_binlog import version
from tidb_binlog.cluster.registry import DRAINERS, PUMPS, ClusterView
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.observe.recent_events import Event
from tidb_binlog.page import curves, drainer_sections, nodes, pump_sections, refresh, way
from tidb_binlog.page.markup import Markup, element, join, place, table, wall
from tidb_binlog.page.template import STYLE, page, security_policy
from tidb_binlog.page.verdict import verdict
from tidb_binlog.status.drainer import DrainerDocument, LoadStatus
from tidb_binlog.status.drainer_conditions import of_drainer
from tidb_binlog.status.history import History
from tidb_binlog.status.pump import PumpDocument
from tidb_binlog.status.pump_conditions import of_pump
from tidb_binlog.tso import Ts

PAGE_STYLE: Final = (
    STYLE
    + way.STYLE
    + curves.STYLE
    + drainer_sections.STYLE
    + """
.verdict ul{margin:8px 0 0;padding-left:20px;font-size:14px;font-weight:400}
.verdict code{color:#fff;font-size:inherit}
span.wrong,p.wrong{color:var(--bad);font-weight:600}span.right{color:var(--good);font-weight:600}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:0 24px;margin:0}
.facts div{display:flex;gap:0 10px;justify-content:space-between;padding:5px 0}
.facts div{border-bottom:1px solid var(--line)}.facts dt{color:var(--soft);flex:none;max-width:50%}
.facts dd{margin:0;text-align:right;overflow-wrap:anywhere}
body{overflow-wrap:anywhere}td.wide{min-width:22em}.ts{color:var(--soft);font-size:12px}
section p{margin:8px 0}section h3{font-size:15px;margin:16px 0 8px}
article{margin:0 0 14px}article h3{margin-top:0}
pre{overflow-x:auto;background:var(--back);border-radius:6px;padding:8px 10px;margin:8px 0;font-size:13px;
white-space:pre-wrap;overflow-wrap:anywhere;max-height:12em}
.commands{list-style:none;padding:0;margin:0}.commands li{margin:6px 0}
.command{display:inline-block;background:var(--back);border:1px solid var(--line);border-radius:6px;
padding:3px 8px;user-select:all;-webkit-user-select:all;overflow-wrap:anywhere}
#refresh{color:var(--soft);margin-top:34px;display:flex;flex-wrap:wrap;gap:12px;align-items:center}
#refresh.wrong{color:var(--bad)}
button{font:inherit;color:var(--ink);background:var(--card);border:1px solid var(--soft);border-radius:6px;
padding:4px 12px;cursor:pointer}:focus-visible{outline:2px solid var(--link);outline-offset:2px}
@media (max-width:720px){main{padding:18px 12px 40px}.facts div{flex-wrap:wrap}.facts dd{text-align:left}}
"""
)


def headers(style: str) -> tuple[tuple[str, str], ...]:
    """With which a page of that style is given, whose script is `refresh`."""
    return (
        ("content-security-policy", security_policy(style=style, script=refresh.SCRIPT)),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    )


HEADERS: Final = headers(PAGE_STYLE)
_EVENTS: Final = ("time", "level", "what", "details", "from")
_NAMES: Final = {PUMPS: "pump", DRAINERS: "drainer"}


@dataclass(frozen=True, slots=True)
class Shown:
    """What there is to show. `document` None: the node starts, and waits for `reason`. `view` None: the
    registry cannot be read, and `why_no_view`. `time_s`: of this host. `past`: its last hour.
    `load`: of the rows that it copies before it is up."""

    kind: str
    document: PumpDocument | DrainerDocument | None
    reason: str
    view: ClusterView | None
    why_no_view: str
    events: Sequence[Event]
    time_s: float
    past: History = field(default_factory=History)
    load: LoadStatus | None = None

    @property
    def node_id(self) -> str:
        return id_of(self.document)

    @property
    def state(self) -> str:
        document = self.document
        if isinstance(document, PumpDocument):
            return "" if document.pump is None else document.pump.state
        return "starting" if document is None else document.state

    @property
    def now_ts(self) -> Ts:
        """The upstream's time: what the node knows of it, or how far any node is."""
        document = self.document
        times = [0]
        if isinstance(document, PumpDocument):
            times.append(document.commit_ts)
        elif document is not None and document.upstream_time:
            times.append(document.upstream_time.ts)
        if self.view is not None:
            entries = (*self.view.pumps.values(), *self.view.drainers.values())
            times += (entry.status.max_commit_ts for entry in entries)
        return max(times)


def id_of(document: PumpDocument | DrainerDocument | None) -> str:
    """Of the node that says it; "" where it does not."""
    if isinstance(document, PumpDocument):
        return "" if document.pump is None else document.pump.node_id
    return "" if document is None else document.node_id


def html(shown: Shown) -> str:
    """The page."""
    name = f"{_NAMES[shown.kind]} {shown.node_id}".strip()
    state = shown.state
    return page(
        f"{name}: {state}" if state else name, _parts(shown, name), style=PAGE_STYLE, script=refresh.SCRIPT
    )


def _parts(shown: Shown, name: str) -> Iterator[str]:
    yield element("header", element("h1", name), element("div", _about(shown), class_="soft"), id="about")
    yield _verdict(shown, name)
    document = shown.document
    if shown.load is not None:
        yield section("load", "Load", drainer_sections.load(shown.load))
    if not shown.past.is_empty:
        yield section("hour", "Last hour", curves.section(shown.past, shown.kind))
    cluster = nodes.section(
        shown.view, shown.why_no_view, shown.kind, shown.node_id, shown.now_ts, shown.time_s
    )
    every = element("p", element("a", "What all nodes say of themselves", href="/cluster"))
    yield section("cluster", "Cluster", join(cluster, every))
    sections: Iterator[tuple[str, Markup]] = iter(())
    if isinstance(document, PumpDocument):
        sections = pump_sections.sections(document)
    elif document is not None:
        sections = drainer_sections.sections(document)
    for number, (title, content) in enumerate(sections):
        yield section(f"part-{number}", title, content)
    yield section("events", "Events", _events(shown.events))
    yield refresh.bar()


def section(name: str, title: str, content: Markup) -> Markup:
    """A part of a page, which the refresh takes for one by its `name`."""
    return element("section", element("h2", title), content, id=name)


def _about(shown: Shown) -> Markup:
    """One line of who it is, and when that was said."""
    document = shown.document
    own = document.pump if isinstance(document, PumpDocument) else document
    said = [f"version {version.release()}"]
    said += [f"cluster {own.cluster_id}"] if own is not None and own.cluster_id else []
    parts = [*said, f"as of {wall(shown.time_s)}"]
    return join(", ".join(parts), *((", upstream at ", place(shown.now_ts)) if shown.now_ts else ()))


def _verdict(shown: Shown, name: str) -> Markup:
    """What needs the operator, the worst first; else what the node does."""
    document = shown.document
    if document is None:
        said = f"Starting: {shown.reason}" if shown.reason else "Starting"
        return verdict(said, (), is_well=False)
    if isinstance(document, PumpDocument):
        title, troubles = pump_sections.headline(document), of_pump(document, name)
    else:
        title, troubles = drainer_sections.headline(document), of_drainer(document, name)
    return verdict(title, troubles, is_well=shown.state == "online")


def _events(events: Sequence[Event]) -> Markup:
    if not events:
        return element("p", "Nothing has been logged.", class_="soft")
    rows = (
        (
            wall(event.time_s),
            element(
                "span", event.level, class_="wrong" if event.level in ("ERROR", "FATAL", "WARN") else None
            ),
            event.text + (f" ({event.count} times)" if event.count > 1 else ""),
            event.details,
            event.component,
        )
        for event in events
    )
    return table("Events", _EVENTS, rows, len(events))
