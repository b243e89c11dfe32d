"""Audit, report: one page that needs nothing, shows texts as texts, and never hides what is open."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from drainer.spark.audit.auditing import Outcome
from drainer.spark.audit.checks.chain_rule import Chains
from drainer.spark.audit.checks.contents import ChunkSum, Contents, TableOutcome
from drainer.spark.audit.checks.figures import Figures, Lag, TableChanges
from drainer.spark.audit.checks.findings import CHAINS, CONTENTS, COVERAGE, Finding, Findings, Note
from drainer.spark.audit.document import document
from drainer.spark.audit.plots import LAG, plots
from drainer.spark.audit.report import html

NOW_S = 1_700_100_000.0
TS = 1_700_000_000_000 << 18
ODD = "d.a$b$<i>`表"


def figures() -> Figures:
    at = 1_700_000_000
    return Figures(
        bucket_s=60,
        files=3,
        size=5 << 20,
        first_ts=TS,
        last_ts=TS + (3_600_000 << 18),
        transactions=1_234_567,
        ddl=4,
        rows=2_500_000,
        rows_per_transaction=Counter({power: 10 ** (6 - power // 2) for power in range(12)}),
        bytes_per_transaction=Counter({8: 1_234_567}),
        transactions_by_time=Counter(
            {at + 60 * n: 900 + 37 * (n % 11) for n in range(60) if n not in range(20, 31)}
        ),
        changes=[
            TableChanges(table, at + 60 * n, 100 + 13 * ((n + k) % 7))
            for n in range(60)
            for k, table in enumerate((ODD, "shop.orders", "shop.lines"))
        ],
        lags=[Lag(f"binlog-{n}", TS + (n * 1_200_000 << 18), 3.0 * 9**n) for n in range(4)],
    )


def faulty() -> Outcome:
    by_check = {check: Findings() for check in (COVERAGE, CHAINS, CONTENTS)}
    text = "files 4 to 5 are missing between a and b"
    by_check[COVERAGE].add(Finding(COVERAGE, "missing file", "binlog-6", text, commit_ts=TS))
    by_check[CHAINS].add(
        Finding(
            CHAINS, "broken chain", ODD, "it <b>differs</b>", "id=7", TS, "binlog-6", 4711, "v = 1", "v = 2"
        )
    )
    by_check[CONTENTS].notes.append(Note(CONTENTS, "shop.t", "not compared: it has no key"))
    sums = [ChunkSum(n, 10, 10, 5 * n, 5 * n + (n == 3), int(n == 3)) for n in range(16)]
    tables = [TableOutcome(ODD, True, True, {"equal": 159, "differs": 1}, sums)]
    contents = Contents(by_check[CONTENTS], tables)
    return Outcome(
        "/archive", "pb", TS, by_check, figures(), Chains(by_check[CHAINS], 9, 8, 17), contents, "u@db:3306"
    )


def test_the_page_is_whole_and_shows_texts_as_texts() -> None:
    page = html(faulty(), NOW_S)
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/", "")
    assert "<b>differs</b>" not in page
    assert "it &lt;b&gt;differs&lt;/b&gt;" in page
    assert "1 finding in coverage, 1 finding in row chains" in page
    assert "not compared: it has no key" in page
    assert "id=7" in page


def test_every_plot_is_well_formed_and_has_parts_of_its_own() -> None:
    made = plots(faulty())
    assert len(made) == 6
    names: Counter[str] = Counter()
    for svg in made.values():
        assert "mathdefault" not in svg
        names.update(one.get("id", "") for one in ElementTree.fromstring(svg).iter() if one.get("id"))
    assert max(names.values()) == 1


def test_the_lag_of_files_is_shown_in_times_that_people_read() -> None:
    outcome = faulty()
    assert document(outcome, NOW_S)["lags"][1]["lag_s"] == 27.0
    assert document(outcome, NOW_S)["age_s"] == NOW_S - 1_700_000_000 - 3600
    shown = plots(outcome)[LAG]
    for tick in ("1 s", "10 s", "1 min", "10 min", "1 h"):
        assert f">{tick}<" in shown
    outcome.figures.lags = []
    assert LAG not in plots(outcome)


def test_what_was_not_asked_for_is_said() -> None:
    outcome = Outcome("/archive", "pb", TS, {COVERAGE: Findings(), CHAINS: Findings()}, figures())
    page = html(outcome, NOW_S)
    assert "Nothing wrong was found in what was checked" in page
    assert "Not asked for: contents" in page
    assert document(outcome, NOW_S)["exit_code"] == 0
