from __future__ import annotations

import itertools
import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tidb_binlog.observe import metrics

_number = itertools.count()


def _name(suffix: str) -> str:
    return f"binlog_test_room{next(_number)}_{suffix}"


def _families(text: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def test_declared_is_what_a_scrape_shows() -> None:
    names = [_name("rows_total"), _name("lag_seconds"), _name("fsync_seconds"), _name("count")]
    metrics.counter(names[0], "Rows.")
    metrics.gauge(names[1], "Lag.")
    metrics.histogram(names[2], "Fsync.")
    metrics.counter(names[3], "An old name.")
    families = _families(metrics.exposition().decode())
    assert {name for name in families if name.startswith("binlog_")} == metrics.declared()
    assert [families[name] for name in names] == ["counter", "gauge", "histogram", "counter"]


def test_counters_keep_their_given_name() -> None:
    old, new = _name("loss_binlog_count"), _name("writes_total")
    metrics.counter(old, "x", ["type"]).labels(type="a").inc(2)
    metrics.counter(new, "x").inc(3)
    lines = metrics.exposition().decode().splitlines()
    assert f'{old}{{type="a"}} 2.0' in lines
    assert f"{new} 3.0" in lines
    assert not any(line.startswith((f"{old}_total", f"{old}_created", f"{new}_created")) for line in lines)


def test_gauge_is_read_when_scraped() -> None:
    name = _name("queue_bytes")
    state = [1]
    metrics.gauge(name, "x").set_function(lambda: state[0])
    state[0] = 42
    assert f"{name} 42.0" in metrics.exposition().decode().splitlines()


@pytest.mark.parametrize(
    "name", ["pump_x_seconds", "binlog_nobody", "binlog_Pump_x_seconds", "binlog_nobody_"]
)
def test_malformed_names_are_refused(name: str) -> None:
    before = metrics.declared()
    with pytest.raises(ValueError, match="does not have the form"):
        metrics.gauge(name, "x")
    assert metrics.declared() == before
    assert name not in metrics.exposition().decode()


def test_a_name_is_declared_once() -> None:
    name = _name("x_total")
    metrics.counter(name, "x")
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.counter(name, "x")


def test_process_metrics_are_there() -> None:
    assert b"process_resident_memory_bytes" in metrics.exposition()


def test_observations_that_are_made_together_are_those_made_one_by_one() -> None:
    alone, together, repeated = (metrics.Tally((1.0, 2.0, 4.0)) for _ in range(3))
    values = [0, 1, 3, 3, 9]
    for value in values:
        alone.observe(value)
    together.observe_each(values)
    assert (together.counts, together.total) == (alone.counts, alone.total) == ([2, 0, 2, 1], 16)
    repeated.observe(3, 4)
    repeated.observe(1, 0)
    assert (repeated.counts, repeated.total) == ([0, 0, 4, 0], 12)


@pytest.mark.parametrize(
    ("accept", "is_open_metrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        ("text/plain;q=0.5, Application/OpenMetrics-Text; version=1.0.0; q=0.7", True),
        ("application/openmetrics-text;version=0.0.1;q=0.0,application/openmetrics-text;version=1.0.0", True),
        ("application/openmetrics-text;q=0, */*", False),
        ("application/openmetrics-textual", False),
    ],
)
def test_the_form_is_the_one_that_is_asked_for(accept: str, is_open_metrics: bool) -> None:
    body, content_type = metrics.answer(accept)
    expected = metrics.OPEN_METRICS_TYPE if is_open_metrics else metrics.CONTENT_TYPE
    assert content_type == expected
    assert body.endswith(b"# EOF\n") is is_open_metrics


def test_open_metrics_has_every_series_under_the_same_name() -> None:
    metrics.counter(_name("old_count"), "Old.", ["type"]).labels("a").inc()
    metrics.counter(_name("rows_total"), "New.").inc(2)
    metrics.gauge(_name("lag_seconds"), "Lag.").set(float("inf"))
    metrics.tally_histogram(_name("write_seconds"), "Writes.", ["type"]).labels("a").observe(1.0)
    body, _ = metrics.answer("application/openmetrics-text")
    families = list(text_string_to_metric_families(body.decode()))
    found = {sample.name for family in families for sample in family.samples}
    text = {
        re.split("[{ ]", line)[0] for line in metrics.exposition().decode().splitlines() if line[0] != "#"
    }
    assert found == text
