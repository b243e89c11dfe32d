"""Curves: what is drawn is what was kept, and is said in words as well."""

from __future__ import annotations

import re

from tests.common.page.support.reading import Element, read
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.page import curves
from tidb_binlog.page.curves import PLACES_MIN
from tidb_binlog.status.history import EVERY_S, PLACES, History, Look


def kept(*lags_s: float | None) -> History:
    history = History()
    for number, lag_s in enumerate(lags_s):
        history.note(number * EVERY_S, Look(lag_s, number * 1000), 5 << 30)
    return history


def figures(history: History, kind: str = DRAINERS) -> list[Element]:
    return read(curves.section(history, kind)).named("figure")


def test_each_curve_says_now_and_the_worst_of_the_hour() -> None:
    behind, rows, disk = figures(kept(0.0, 300.0, 0.0))
    assert behind.named("svg")[0].attributes["aria-label"] == "Behind the upstream: up to date, at most 5 min"
    assert "at most 5 min" in behind.text
    assert rows.named("svg")[0].attributes["aria-label"] == "Rows applied a second: 100, at most 100"
    assert disk.named("svg")[0].attributes["aria-label"] == "Disk free: 5.0 GiB, at least 5.0 GiB"
    assert "Binlogs stored a second" in figures(kept(1.0), PUMPS)[1].text


def test_the_highest_value_reaches_the_top_and_gaps_stay_open() -> None:
    behind = figures(kept(50.0, 100.0, None, 25.0))[0]
    area, end, line, point = (one.attributes["d"] for one in behind.named("path"))
    assert line == f"M{PLACES - 4} 30L{PLACES - 3} 0"
    assert area == line + f"V60H{PLACES - 4}Z"
    assert point == f"M{PLACES - 2} 45L{PLACES - 1} 45"
    assert end.startswith(point)


def test_a_node_that_began_a_while_ago_has_its_curve_over_the_whole_width() -> None:
    def axis(values: int) -> tuple[str, str]:
        figure = figures(kept(*[1.0] * values))[0]
        return figure.named("svg")[0].attributes["viewbox"], figure.named("p")[0].named("span")[0].text

    assert axis(2) == (f"{PLACES - PLACES_MIN} -2 {PLACES_MIN - 1} 62", "5 min ago")
    assert axis(60) == (f"{PLACES - 60} -2 59 62", "10 min ago")
    assert axis(PLACES * 2) == (f"0 -2 {PLACES - 1} 62", "60 min ago")


def test_what_is_worth_nothing_does_not_fill_the_picture() -> None:
    behind = figures(kept(0.0, 0.02))[0]
    assert behind.named("path")[-1].attributes["d"] == f"M{PLACES - 2} 60L{PLACES - 1} 59.4"
    quiet = figures(kept(0.0, 0.0))[0]
    assert quiet.named("svg")[0].attributes["aria-label"] == "Behind the upstream: up to date"


def test_what_is_not_known_now_is_not_said() -> None:
    behind = figures(kept(7.0, None))[0]
    assert behind.named("svg")[0].attributes["aria-label"] == "Behind the upstream: unknown, at most 7.0 s"
    empty = figures(kept(None, None))[0]
    assert empty.named("svg")[0].attributes["aria-label"] == "Behind the upstream: unknown"
    assert not empty.named("path")


def test_a_whole_hour_is_a_few_kilobytes_and_all_of_it_is_drawn() -> None:
    text = curves.section(kept(*(float(number * 7919 % 1000) for number in range(PLACES))), DRAINERS)
    for figure in read(text).named("figure")[::2]:
        area, line = (one.attributes["d"] for one in figure.named("path"))
        assert line.count("L") == PLACES - 1
        assert area.startswith(line)
    assert len(text) < 24 * 1024
    assert not re.search(r"nan|inf", text)
