"""Metrics: declaring one registers it, and one registry serves a whole process.

Names are `binlog_<daemon>_<room>_<what>_<unit>[_total]`, base units, labels from closed sets. Some names are
older than this project and are counters without `_total`; they are exposed as given, since dashboards and
alerts know them so.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import add
from typing import Final
from urllib.error import HTTPError

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import default_handler
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

REGISTRY: Final = CollectorRegistry()
PUSH_JOB: Final = "binlog"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Seconds, from 50 microseconds to 6.5 seconds.
SECONDS_BUCKETS: Final = tuple(5e-5 * 2**power for power in range(18))

_NAME = re.compile(r"binlog(_[a-z0-9]+){2,}")
_declared: set[str] = set()
_bare_counters: set[str] = set()

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
ProcessCollector(registry=REGISTRY)


class _BareCounter(Counter):
    """A counter whose samples do not end in `_total`."""

    def _child_samples(self) -> Iterable[Sample]:
        return (
            Sample("", sample.labels, sample.value, None, None, None)
            for sample in super()._child_samples()
            if sample.name == "_total"
        )

    def _get_metric(self) -> Metric:
        return Metric(self._name, self._documentation, "unknown", self._unit)


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"metric name {name!r} does not have the form binlog_<daemon>_<room>_<what>_<unit>")


def counter(name: str, help: str, labels: Sequence[str] = ()) -> Counter:
    """Declare a counter. Raises `ValueError` if the name is taken or malformed."""
    _check(name)
    bare = not name.endswith("_total")
    metric = (_BareCounter if bare else Counter)(name, help, labels, registry=REGISTRY)
    if bare:
        _bare_counters.add(name)
    _declared.add(name)
    return metric


def gauge(name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
    """Declare a gauge; prefer `set_function`, which reads the state when scraped."""
    _check(name)
    metric = Gauge(name, help, labels, registry=REGISTRY)
    _declared.add(name)
    return metric


def histogram(
    name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS_BUCKETS
) -> Histogram:
    """Declare a histogram; `buckets` are upper bounds in the unit of the name, ascending."""
    _check(name)
    metric = Histogram(name, help, labels, registry=REGISTRY, buckets=buckets)
    _declared.add(name)
    return metric


Samples = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
HistogramSamples = Callable[[], Iterable[tuple[tuple[str, ...], Sequence[int], float]]]


class _Computed(Collector):
    """Reads plain numbers when scraped: counting then costs an addition."""

    def __init__(self, make: Callable[[], Metric]) -> None:
        self._make = make

    def collect(self) -> Iterable[Metric]:
        yield self._make()

    def describe(self) -> Iterable[Metric]:
        return ()


def computed_counter(name: str, help: str, labels: Sequence[str], read: Samples) -> None:
    """Declare a counter whose values `read` gives: (label values, value)."""
    _declare_computed(name, lambda: _family(CounterMetricFamily(name, help, labels=labels), read))


def computed_gauge(name: str, help: str, labels: Sequence[str], read: Samples) -> None:
    """Declare a gauge whose values `read` gives: (label values, value)."""
    _declare_computed(name, lambda: _family(GaugeMetricFamily(name, help, labels=labels), read))


def computed_histogram(
    name: str, help: str, labels: Sequence[str], buckets: Sequence[float], read: HistogramSamples
) -> None:
    """Declare a histogram: `read` gives label values, a count for each bucket and for +Inf, and the sum."""

    def make() -> Metric:
        family = HistogramMetricFamily(name, help, labels=labels)
        for values, counts, total in read():
            bounds = [*map(floatToGoString, buckets), "+Inf"]
            cumulative = list(zip(bounds, accumulate(map(float, counts)), strict=True))
            family.add_metric(list(values), cumulative, total)
        return family

    _declare_computed(name, make)


class Tally:
    """One series of a histogram, for the busiest places: an observation is an addition, without a lock, so
    only one thread may make them."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def observe_each(self, values: Sequence[float]) -> None:
        counts, bounds = self.counts, self._bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.total += sum(values)

    def add(self, counts: Sequence[int], total: float) -> None:
        """Observations that were counted elsewhere: for each bucket, and the sum of the values."""
        self.counts[:] = map(add, self.counts, counts)
        self.total += total


class TallyHistogram:
    """A histogram of `Tally` series, by label values."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._series: dict[tuple[str, ...], Tally] = {}

    def labels(self, *values: str) -> Tally:
        """The series of these label values, made when first asked for."""
        if values not in self._series:
            self._series[values] = Tally(self._bounds)
        return self._series[values]

    def read(self) -> Iterable[tuple[tuple[str, ...], Sequence[int], float]]:
        return [(values, tally.counts, tally.total) for values, tally in self._series.items()]


def tally_histogram(
    name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS_BUCKETS
) -> TallyHistogram:
    """Declare a histogram that a hot path observes; `buckets` as in `histogram`."""
    family = TallyHistogram(buckets)
    computed_histogram(name, help, labels, buckets, family.read)
    return family


def _family(family: CounterMetricFamily | GaugeMetricFamily, read: Samples) -> Metric:
    for values, value in read():
        family.add_metric(list(values), float(value))
    return family


def _declare_computed(name: str, make: Callable[[], Metric]) -> None:
    _check(name)
    if name in _declared:
        raise ValueError(f"metric {name} is declared twice")
    REGISTRY.register(_Computed(make))
    _declared.add(name)


def declared() -> frozenset[str]:
    """Names of all metrics that this process has declared so far."""
    return frozenset(_declared)


def exposition() -> bytes:
    """Everything in the text form that Prometheus scrapes (`CONTENT_TYPE`)."""
    text = prometheus_client.generate_latest(REGISTRY)
    for name in _bare_counters:
        text = text.replace(f"# TYPE {name} untyped\n".encode(), f"# TYPE {name} counter\n".encode())
    return text


def answer(accept: str) -> tuple[bytes, str]:
    """Everything in the form that a request's `Accept` asks for, and its content type.

    OpenMetrics where it is named, the text form for all others. Old counters without `_total` are of unknown
    type there: OpenMetrics has no counters of such a name.
    """
    if _takes_open_metrics(accept):
        body: bytes = open_metrics(REGISTRY)  # type: ignore[no-untyped-call]
        return body, OPEN_METRICS_TYPE
    return exposition(), CONTENT_TYPE


def _takes_open_metrics(accept: str) -> bool:
    for part in accept.lower().split(","):
        kind, *parameters = (piece.replace(" ", "") for piece in part.split(";"))
        refused = any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
        if kind == "application/openmetrics-text" and not refused:
            return True
    return False


def push(gateway: str, instance: str, text: bytes, deadline_s: float) -> None:
    """Add an exposition to a Pushgateway (`http://host:port`, or host:port), as job `binlog` of `instance`.

    Blocks. Metrics of the same instance that the text does not have stay there. Raises `OSError`,
    `HTTPException`, and `ValueError` for an address that is none.
    """

    def handler(
        url: str, method: str, timeout: float | None, headers: list[tuple[str, str]], data: bytes
    ) -> Callable[[], None]:
        return default_handler(url, method, timeout, headers, data + text)

    try:
        prometheus_client.pushadd_to_gateway(
            gateway,
            job=PUSH_JOB,
            registry=CollectorRegistry(),  # the text is there already, as a scrape shows it
            grouping_key={"instance": instance},
            timeout=deadline_s,
            handler=handler,
        )
    except HTTPError as error:
        error.close()  # its connection is in it
        raise
