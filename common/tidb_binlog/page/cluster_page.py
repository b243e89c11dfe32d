"""Cluster page: what a node shows at `GET /cluster`: every node, what it does and what needs the operator.

Out    HTML of bounded size, whatever nodes say, and the headers with which it is given
Holds  a node with a trouble comes before those without; as on the status page, all texts are escaped and
       nothing changes a node
Tests  tests/common/page/test_cluster_page.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidb_binlog.cluster.overview import Kept, NodeLine, Overview
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.page import refresh
from tidb_binlog.page.markup import NOTHING, Markup, element, facts, first, join, place, wall
from tidb_binlog.page.nodes import link
from tidb_binlog.page.status_page import PAGE_STYLE, headers, section
from tidb_binlog.page.template import page
from tidb_binlog.page.verdict import verdict, words
from tidb_binlog.page.way import WORTH_S
from tidb_binlog.quantities import UP_TO_DATE, behind_text, count, span
from tidb_binlog.status.troubles import ERROR, Trouble

_STYLE: Final = (
    PAGE_STYLE
    + """
.cards{grid-template-columns:repeat(auto-fill,minmax(min(330px,100%),1fr))}
.card h3{overflow-wrap:anywhere}.cards article{margin:0}.card .facts div:last-child{border-bottom:0}
.card ul.troubles{margin:8px 0 0;padding-left:18px;color:var(--bad)}
.card svg{display:block;width:100%;margin:8px 0 4px}
.s0{--of:#3b82c4}.s1{--of:#a45fc0}.s2{--of:#c98a1b}.s3{--of:#2a9d8f}.s4{--of:#d1495b}
.card rect{fill:var(--of)}.keys{display:flex;flex-wrap:wrap;gap:2px 12px;font-size:12px;margin:0}
.keys span::before{content:"";display:inline-block;width:.7em;height:.7em;margin-right:4px;
background:var(--of)}
.kept line{stroke:var(--line);stroke-width:4}.kept .past{stroke:var(--link)}.kept circle{fill:var(--link)}
"""
)
HEADERS: Final = headers(_STYLE)
_KEPT_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """`kind`, `node_id`: of the node whose page it is. `seen` None: nobody could be asked, `why_none`."""

    kind: str
    node_id: str
    seen: Overview | None
    why_none: str
    time_s: float


def html(shown: ShownCluster) -> str:
    """The page."""
    return page("Cluster", _parts(shown), style=_STYLE, script=refresh.SCRIPT)


def _parts(shown: ShownCluster) -> Iterator[str]:
    own = f"{shown.kind[:-1]} {shown.node_id}".strip()
    said = join("as seen by ", element("a", own, href="/"), f" at {wall(shown.time_s)}")
    yield element("header", element("h1", "Cluster"), element("div", said, class_="soft"), id="about")
    seen = shown.seen
    if seen is None:
        yield verdict(f"The registry cannot be read: {shown.why_none}", (), is_well=False)
    else:
        title = "All is well" if not seen.troubles else _counted(seen)
        # What drainers wait for before that they wait.
        causes_first = sorted(seen.troubles, key=lambda trouble: trouble.node.startswith("drainer "))
        yield verdict(title, causes_first, named=True)
        for name, lines in (
            ("Pumps", [line for line in seen.nodes if line.kind == PUMPS]),
            ("Drainers", [line for line in seen.nodes if line.kind == DRAINERS and not line.reader]),
            ("Readers", [line for line in seen.nodes if line.reader]),
        ):
            if lines or name != "Readers":
                yield section(name.lower(), f"{name} ({len(lines):,})", _cards(lines, shown, seen))
    yield refresh.bar()


def _counted(seen: Overview) -> str:
    pumps = sum(line.kind == PUMPS for line in seen.nodes)
    readers = sum(line.reader for line in seen.nodes)
    said = [count(pumps, "pump"), count(len(seen.nodes) - pumps - readers, "drainer")]
    return ", ".join([*said, count(readers, "reader")] if readers else said)


def _cards(lines: Sequence[NodeLine], shown: ShownCluster, seen: Overview) -> Markup:
    if not lines:
        return element("p", "None is registered.", class_="soft")
    troubles: dict[str, list[Trouble]] = {line.label: [] for line in lines}
    for trouble in seen.troubles:
        troubles.get(trouble.node, []).append(trouble)

    def rank(line: NodeLine) -> tuple[bool, bool, str]:
        own = troubles[line.label]
        return not any(trouble.severity == ERROR for trouble in own), not own, line.node_id

    worst = sorted(lines, key=rank)
    cards = first(_card(line, troubles[line.label], shown) for line in worst)
    left = len(lines) - len(cards)
    more = element("p", f"{left:,} more; binlogctl status has all.", class_="soft") if left else ""
    return join(element("div", *cards, class_="cards"), more)


def _card(line: NodeLine, troubles: Sequence[Trouble], shown: ShownCluster) -> Markup:
    is_own = (line.kind, line.node_id) == (shown.kind, shown.node_id)
    name = element("a", line.node_id, href="/") if is_own else _name(line)
    pairs: list[tuple[str, object]] = [
        ("behind", NOTHING if line.behind_s is None else _behind(line.behind_s)),
        ("sorted up to" if line.kind == PUMPS else "applied up to", place(line.position_ts)),
        ("address", line.address),
    ]
    pairs += [("doing", line.doing)] if line.doing else []
    return element(
        "article",
        element("h3", element("span", line.state_text, class_="tag"), name),
        facts(pairs),
        _stages(line.stages_s) if (line.behind_s or 0.0) >= WORTH_S and line.stages_s else "",
        *(_kept(kept) for kept in line.kept[:_KEPT_SHOWN]),
        element("ul", *(element("li", *words(trouble)) for trouble in troubles[:10]), class_="troubles")
        if troubles
        else "",
        class_=f"card {'wrong' if troubles else 'ok'}",
    )


def _name(line: NodeLine) -> object:
    """Programs have no page; Go nodes, which keep no lease, have a /status."""
    if line.reader:
        return line.node_id
    return link(line.node_id, line.address, "/status" if line.alive is None else "/")


def _behind(behind_s: float) -> str:
    return span(behind_s) if behind_s else UP_TO_DATE


def _stages(stages_s: Mapping[str, float]) -> Markup:
    """Where the lag comes from: a bar of parts, and in words."""
    total_s, left = sum(stages_s.values()) or 1.0, 0.0
    drawn = []
    for number, took_s in enumerate(stages_s.values()):
        width = 100 * took_s / total_s
        drawn.append(element("rect", x=f"{left:.2f}", width=f"{width:.2f}", height=4, class_=f"s{number}"))
        left += width
    named = [(name.replace("_", " "), took_s) for name, took_s in stages_s.items()]
    said = [f"{name} {span(took_s)}" for name, took_s in named]
    return join(
        element(
            "svg",
            *drawn,
            viewBox="0 0 100 4",
            height=8,
            preserveAspectRatio="none",
            role="img",
            aria_label=f"Where the lag comes from: {', '.join(said)}",
        ),
        element(
            "p",
            *(element("span", words_of, class_=f"s{number}") for number, words_of in enumerate(said)),
            class_="keys soft",
        ),
    )


def _kept(kept: Kept) -> Markup:
    """A place between what a pump has purged and now."""
    whole_s = kept.left_s + kept.behind_s
    at = round(4 + 192 * (kept.left_s / whole_s if whole_s > 0 else 1.0), 1)
    said = f"{kept.node_id}: {span(kept.left_s)} until a purge reaches it, {behind_text(kept.behind_s)}"
    return element(
        "div",
        element(
            "svg",
            element("line", x1=4, x2=at, y1=5, y2=5, class_="past"),
            element("line", x1=at, x2=196, y1=5, y2=5),
            element("circle", cx=at, cy=5, r=3.5),
            viewBox="0 0 200 10",
            role="img",
            aria_label=f"From what is purged to now, {said}",
        ),
        element("p", said, class_="keys soft"),
        class_="kept",
    )
