"""Status page: nothing that a node says can be more than text, and no page grows without limit."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import pytest

from tests.common.page.support.hostile import ATTACK, events, filled, view
from tests.common.page.support.reading import Element, read
from tidb_binlog.cluster.registry import DRAINERS, PUMPS, ClusterView
from tidb_binlog.page.status_page import HEADERS, Shown, html
from tidb_binlog.status.drainer import ControlStatus, DrainerDocument, LagStatus
from tidb_binlog.status.pump import ClockStatus, PumpDocument, PumpStatus

FORMS = {PUMPS: PumpDocument, DRAINERS: DrainerDocument}
SIZE_MAX = 1 << 20


def shown(kind: str, document: Any = None, reason: str = "", **more: Any) -> Shown:
    said = {"view": view(), "why_no_view": "", "events": events(), "time_s": 1_700_000_000.0, **more}
    return Shown(kind, document, reason, **said)


def page(kind: str, document: Any = None, reason: str = "", **more: Any) -> Element:
    text = html(shown(kind, document, reason, **more))
    text.encode()
    return read(text)


def names(top: Element) -> set[str]:
    return {one.name for one in top.all()}


def verdict(top: Element) -> tuple[str, str]:
    found = top.part("verdict")
    return found.attributes["class"].removeprefix("verdict "), found.text


@pytest.mark.parametrize("kind", [PUMPS, DRAINERS])
@pytest.mark.parametrize(
    "more",
    [{}, {"view": None, "why_no_view": ATTACK}, {"view": view([ATTACK, "b"], alive=None, host="h:1")}],
    ids=["hostile registry", "no registry", "a link"],
)
def test_nothing_that_a_node_says_becomes_an_element(kind: str, more: dict[str, Any]) -> None:
    """Every text of the document, of the registry and of the log is an attack."""
    hostile = page(kind, filled(FORMS[kind]), **more)
    harmless = page(kind, filled(FORMS[kind], text="a"), events=events(text="a"))
    assert names(hostile) <= names(harmless) | {"a", "strong"}
    assert len(hostile.named("script")) == 1
    assert "alert" not in hostile.named("script")[0].text
    assert "<script>alert(1)</script>" in hostile.text
    for one in hostile.all():
        assert not [name for name in one.attributes if name.startswith("on") or name == "style"]
        assert one.attributes.get("href", "//h:1/").startswith(("//h:1/", "/cluster"))
    for steering in ("\u202e", "\x1b", "\ud800"):
        assert steering not in hostile.text


@pytest.mark.parametrize("kind", [PUMPS, DRAINERS])
def test_what_a_node_waits_for_is_a_text_too(kind: str) -> None:
    starting = page(kind, None, ATTACK)
    assert len(starting.named("script")) == 1
    level, said = verdict(starting)
    assert level == "part"
    assert said.startswith("Starting: <script>")
    assert verdict(page(kind)) == ("part", "Starting")


@pytest.mark.parametrize("kind", [PUMPS, DRAINERS])
def test_a_page_is_bounded_whatever_is_in_the_documents(kind: str) -> None:
    """Two thousand of everything, each with long texts."""
    document = filled(FORMS[kind], text="<&>" * 3000, copies=2)
    for name in ("lanes", "pumps", "went_back") if kind == DRAINERS else ():
        value = getattr(document, name)
        copies = {f"{n}": next(iter(value.values())) for n in range(2000)} if isinstance(value, dict) else []
        setattr(document, name, copies or value * 1000)
    if kind == DRAINERS:
        for waiting in document.ddl.waiting:
            waiting.tables *= 1000
        document.ddl.waiting *= 1000
        document.drift.rows = {f"{n}": n for n in range(2000)}
    else:
        for some in (document.pump.oldest, document.pump.pullers, document.pump.retention.drainers):
            some *= 1000
        document.pump.retention.held_up_by *= 1000
        document.pump.leaving.drainers *= 1000
    many = view([f"{n}" + "<&>" * 300 for n in range(3000)])
    text = html(shown(kind, document, view=many, events=events(100, "<&>" * 300)))
    assert len(text.encode()) < SIZE_MAX
    assert "of 6,000 are shown" in text


def test_the_policy_lets_run_what_we_wrote_and_nothing_else() -> None:
    top = page(DRAINERS, DrainerDocument())
    headers = dict(HEADERS)
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    for name in ("script", "style"):
        (found,) = top.named(name)
        digest = base64.b64encode(hashlib.sha256(found.text.encode()).digest()).decode()
        assert policy[f"{name}-src"] == f"'sha256-{digest}'"
        assert not found.attributes
    assert policy["default-src"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_nothing_on_a_page_changes_anything_or_loads_anything() -> None:
    for kind, form in FORMS.items():
        top = page(kind, filled(form, text="a"), view=view(["b"], host="h:1"))
        assert not names(top) & {
            "form",
            "input",
            "img",
            "iframe",
            "link",
            "object",
            "embed",
            "base",
            "textarea",
        }
        assert not [one for one in top.all() if "src" in one.attributes]
        (button,) = top.named("button")
        assert button.attributes["type"] == "button"
        script = top.named("script")[0].text
        assert script.count("fetch(") == 1
        assert "method" not in script


@pytest.mark.parametrize(
    ("document", "level", "words"),
    [
        (PumpDocument(pump=PumpStatus(state="online", writer="ok")), "good", ["Takes binlogs"]),
        (PumpDocument(pump=PumpStatus(state="closing")), "part", ["This pump is closing"]),
        (
            PumpDocument(pump=PumpStatus(state="online", writer="failed", writer_error="EIO")),
            "bad",
            ["Stores nothing any more: EIO (repair its disk, then restart it)"],
        ),
        (PumpDocument(error="etcd is away", pump=PumpStatus(state="online")), "part", ["Is cut off: etcd"]),
        (DrainerDocument(state="online", lag=LagStatus(total_s=0.5)), "good", ["0.5 s behind the upstream"]),
        (
            DrainerDocument(state="online", lag=LagStatus(total_s=1.5, eta_s=0.0, queue_s=0.0, apply_s=0.0)),
            "good",
            ["Up to date with the upstream"],
        ),
        (DrainerDocument(state="standby", doing="standing by for d"), "part", ["standing by for d"]),
        (
            DrainerDocument(
                node_id="d", state="online", lag=LagStatus(total_s=99.0), control=ControlStatus(paused=True)
            ),
            "part",
            ["99 s behind", "Holds applying back", "(binlogctl resume d)"],
        ),
        (
            DrainerDocument(state="online", lag=LagStatus(total_s=99.0, eta_s=5.0, reason="lanes are busy")),
            "part",
            ["Is 99 s behind: lanes are busy"],
        ),
    ],
)
def test_the_verdict_says_what_needs_the_operator(
    document: PumpDocument | DrainerDocument, level: str, words: Sequence[str]
) -> None:
    top = page(PUMPS if isinstance(document, PumpDocument) else DRAINERS, document)
    found, said = verdict(top)
    assert found == level
    for one in words:
        assert one in said


def test_a_command_in_a_hint_can_be_copied() -> None:
    paused = DrainerDocument(node_id="d", state="online", control=ControlStatus(paused=True))
    assert [one.text for one in page(DRAINERS, paused).part("verdict").named("code")] == [
        "binlogctl resume d"
    ]


def test_who_it_is_and_by_which_clocks() -> None:
    pump = PumpDocument(commit_ts=0, pump=PumpStatus(node_id="p1", state="online", cluster_id=42))
    top = page(PUMPS, pump)
    assert top.named("h1")[0].text == "pump p1"
    assert top.named("title")[0].text == "pump p1: online"
    about = top.part("about").text
    assert "cluster 42, as of 2023-11-14T22:13:20.000Z" in about
    # How far any node is, where this one does not know the upstream's time.
    assert f"upstream at 1970-01-01T00:00:00.007Z {7 << 18}" in about
    drainer = DrainerDocument(node_id="d1", upstream_time=ClockStatus(ts=9 << 18))
    assert "1970-01-01T00:00:00.009Z" in page(DRAINERS, drainer).part("about").text
    empty = page(DRAINERS, DrainerDocument(), view=ClusterView(1, {}, {}), events=[])
    assert "upstream at" not in empty.part("about").text
    assert "Nothing has been logged." in empty.part("events").text


def test_events_are_shown_with_how_often_they_came() -> None:
    top = page(PUMPS, PumpDocument(), events=events(2, "a"))
    cells = [one.text for one in top.part("events").named("td")]
    assert cells[:5] == ["1970-01-01T00:00:01.000Z", "a", "a (2 times)", "a", "a"]


def test_parts_have_names_by_which_a_refresh_finds_them() -> None:
    top = page(DRAINERS, filled(DrainerDocument, text="a"))
    (main,) = top.named("main")
    identities = [one.attributes.get("id", "") for one in main.inside]
    assert all(identities)
    assert len(set(identities)) == len(identities)
    assert identities[0] == "about"
    assert identities[-1] == "refresh"
