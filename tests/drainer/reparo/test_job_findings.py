"""Job findings on a real server: what lanes count and DDL leave out is there for whoever asks later."""

from __future__ import annotations

from contextlib import closing

from drainer.checkpoint.job_findings import ROWS, TEXTS, JobFindings
from drainer.mysql.connection import Target, connect
from tests.drainer.support.apply_life import clean
from tidb_binlog.status.drainer import LackStatus

SCHEMA = "tidb_binlog_jobs"


def test_counts_of_lanes_and_runs_add_up_and_roll_back(target: Target) -> None:
    findings, other = JobFindings(SCHEMA, 7), JobFindings(SCHEMA, 8)
    with closing(connect(target)) as connection:
        assert findings.counts(connection, ROWS) == {}
        assert findings.missing(connection) == {}
        findings.create(connection)
        for lane in (0, 1, 0):
            findings.count(connection, lane, ROWS, [("d.t", 2), ("d.T", 1)])
        findings.count(connection, 0, TEXTS, [("d.t.it's", 5)])
        other.count(connection, 0, ROWS, [("d.t", 9)])
        connection.commit()
        findings.count(connection, 2, ROWS, [("d.t", 100)])
        connection.rollback()
        assert findings.counts(connection, ROWS) == {"d.t": 6, "d.T": 3}
        assert findings.counts(connection, TEXTS) == {"d.t.it's": 5}
        assert other.counts(connection, ROWS) == {"d.t": 9}
    clean(target)


def test_what_is_missing_is_said_once_and_taken_back(target: Target) -> None:
    findings = JobFindings(SCHEMA, 7)
    with closing(connect(target)) as connection:
        findings.create(connection)
        for commit_ts in (30, 4, 30):
            lack = LackStatus(job_id=1, commit_ts=commit_ts, tables=["d.t"], missing=["k\n\udcff", "日"])
            findings.keep_lack(target, lack)
        line = "since job 1 (d.t): k ?; 日"
        assert list(findings.missing(connection).values()) == [[line], [line]]
        findings.say(connection, f"{4:020d}", ["a", "b"])
        findings.say(connection, f"{30:020d}", [])
        assert [*findings.missing(connection).values()] == [["a", "b"], []]
    clean(target)
