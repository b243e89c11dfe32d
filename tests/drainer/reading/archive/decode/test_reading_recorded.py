"""Every recorded scenario: what the readers give is what TiDB wrote, from each kind of archive."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from drainer.config.relay_format import FORMATS
from drainer.reading.archive.decode.records import Changes
from drainer.txn import Ddl, Transaction
from tests.drainer.reading.archive.support import corpus
from tests.drainer.reading.archive.support.corpus import BETWEEN, LACKING_COLUMNS, WRONG_NAMES, Change, Values
from tests.drainer.support import recorded
from tests.drainer.support.relay_world import items
from tidb_binlog.errors import Corruption

KINDS = ("insert", "update", "delete")
TWO_FORMS = {"ddl": 2}


@functools.cache
def expected(scenario: str) -> list[Change]:
    return list(Values().of_items(items(scenario)))


def assert_same_but_for_faults(scenario: str, got: list[Change], wanted: list[Change]) -> None:
    differ = [(a, b) for a, b in zip(got, wanted, strict=True) if a != b]
    renamed = [(a, b) for a, b in differ if a._replace(name=b.name) == b]
    lacking = [(a, b) for a, b in differ if set(columns(a)) < set(columns(b))]
    assert len(renamed) == WRONG_NAMES.get(scenario, 0)
    assert len(lacking) == LACKING_COLUMNS.get(scenario, 0)
    others = len(differ) - len(renamed) - len(lacking)
    assert others == BETWEEN.get(scenario, 0)


def columns(change: Change) -> list[str]:
    return list(change.before or change.after or ())


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_pump_data_holds_the_transactions_that_the_pump_served(scenario: str, tmp_path: Path) -> None:
    known = corpus.of_history(scenario)
    found = [
        record for location in corpus.pumps(scenario, tmp_path) for record in corpus.records(location, known)
    ]
    found.sort(key=lambda record: record.commit_ts if isinstance(record, Changes) else record.ddl.commit_ts)
    assert list(Values().of_records(found)) == expected(scenario)
    served = [item for item in items(scenario) if isinstance(item, Ddl)]
    assert [(ddl.commit_ts, ddl.query, ddl.tables) for ddl in corpus.ddls(found)] == [
        (ddl.commit_ts, ddl.query, ddl.tables) for ddl in served
    ]
    starts = {item.commit_ts: item.start_ts for item in items(scenario) if isinstance(item, Transaction)}
    assert all(record.start_ts == starts[record.commit_ts] for record in found if isinstance(record, Changes))


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_go_relay_holds_the_same_rows(scenario: str, tmp_path: Path) -> None:
    location, known = corpus.unpacked(scenario, "relay", tmp_path), corpus.of_history(scenario)
    (name,) = [entry.name for entry in location.list()]
    if scenario in TWO_FORMS:
        with pytest.raises(Corruption, match=rf"{name}: offset \d+: .* has 6 of 7 columns"):
            corpus.records(location, known)
    found = corpus.records(location, known, damage="report")
    got = list(Values().of_records(found))
    seen = {line["commit_ts"] for line in recorded.events(scenario)}
    wanted = [change for change in expected(scenario) if change.commit_ts in seen]
    lost = {change.commit_ts for change in wanted} - {change.commit_ts for change in got}
    assert len(lost) == TWO_FORMS.get(scenario, 0)
    wanted = [change for change in wanted if change.commit_ts not in lost]
    assert_same_but_for_faults(scenario, got, wanted)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_our_relay_holds_the_same_rows(scenario: str, form: str, tmp_path: Path) -> None:
    found = corpus.records(corpus.our_relay(items(scenario), tmp_path, 32 << 10, form))
    assert list(Values().of_records(found)) == expected(scenario)
    ddls = [item for item in items(scenario) if isinstance(item, Ddl)]
    assert [(ddl.commit_ts, ddl.query, ddl.job) for ddl in corpus.ddls(found)] == [
        (ddl.commit_ts, ddl.query, ddl.job) for ddl in ddls
    ]


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_go_archive_holds_what_its_decoded_output_says(scenario: str, tmp_path: Path) -> None:
    found = corpus.records(corpus.unpacked(scenario, "events", tmp_path / "e"), corpus.of_history(scenario))
    rows = [
        (record.commit_ts, *row[0].downstream, KINDS[row[1]])
        for record in found
        if isinstance(record, Changes)
        for row in record.rows
    ]
    assert rows == [
        (line["commit_ts"], event["schema"], event["table"], event["tp"])
        for line in recorded.events(scenario)
        for event in line.get("events", ())
    ]
    got, seen = list(Values().of_records(found)), {row[0] for row in rows}
    wanted = [change for change in expected(scenario) if change.commit_ts in seen]
    assert_same_but_for_faults(scenario, got, wanted)
    assert [ddl.commit_ts for ddl in corpus.ddls(found)] == [
        line["commit_ts"] for line in recorded.events(scenario) if "ddl" in line
    ]
