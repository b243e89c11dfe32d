"""Way: the picture marks what holds the stream, and says in words what it shows."""

from __future__ import annotations

from tests.common.page.support.hostile import ATTACK
from tests.common.page.support.reading import Element, read
from tidb_binlog.page.way import WORTH_S, Stage, picture


def stages(**lags: float | None) -> list[Stage]:
    return [Stage(name, lag_s, f"note of {name}") for name, lag_s in lags.items()]


def shown(*args: Stage) -> Element:
    return read(picture(args, "Lag"))


def test_it_is_drawn_lying_and_standing_and_said_in_words() -> None:
    page = shown(*stages(Write=0.1, Pull=30.0, Apply=10.0))
    flat, tall = page.named("svg")
    assert [one.attributes["class"] for one in (flat, tall)] == ["flat", "tall"]
    for svg in (flat, tall):
        assert svg.attributes["role"] == "img"
        said = "Lag: Write 0.1 s (note of Write), Pull 30 s (note of Pull), Apply 10 s (note of Apply)"
        assert svg.attributes["aria-label"] == f"{said}; most of it in Pull"
        held = [one for one in svg.named("g") if one.attributes.get("class") == "held"]
        assert [one.named("text")[0].text for one in held] == ["Pull"]
        assert len(svg.named("path")) == 2
        *_, across, down = map(float, svg.attributes["viewbox"].split())
        for rect in svg.named("rect"):
            at = rect.attributes
            assert float(at["x"]) + float(at["width"]) <= across
            assert float(at["y"]) + float(at["height"]) <= down


def test_bars_are_shares_of_the_whole() -> None:
    bars = [one for one in shown(*stages(a=1.0, b=3.0, c=0.0)).named("rect") if "class" in one.attributes][:3]
    widths = [float(one.attributes["width"]) for one in bars]
    assert widths[1] == 3 * widths[0] > widths[2] == 0


def test_nothing_is_marked_in_an_idle_stream_and_what_nobody_says_is_unknown() -> None:
    page = shown(*stages(Write=WORTH_S - 0.1, Pull=None))
    assert "unknown" in page.text
    assert not [one for one in page.all() if one.attributes.get("class") == "held"]
    assert not shown().named("g")


def test_notes_are_texts() -> None:
    page = shown(Stage(ATTACK, 1.0, ATTACK))
    assert not page.named("script")
    assert "<script>" in page.named("svg")[0].attributes["aria-label"]
