"""Options of reparo: every flag and key of the Go tool, and what cannot be right."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from drainer.formats.segment_index import UTC
from drainer.reparo.options import ENV_PREFIX, ReparoConfig
from tidb_binlog import tso
from tidb_binlog.config import loading
from tidb_binlog.errors import ConfigError, FlagError

GO_FILE = """
data-dir = "./data.drainer"
log-file = ""
log-level = "info"
start-datetime = "2018-02-28 12:12:12"
stop-datetime = "2018-02-28 12:12:13"
start-tso = 0
stop-tso = 0
dest-type = "mysql"
txn-batch = 20
worker-count = 16
safe-mode = true
replicate-do-db = ["~^b.*","s1"]
replicate-ignore-db = ["~^c{1,2}.*","s2"]

[[replicate-do-table]]
db-name = "test"
tbl-name = "~^a.*"

[[replicate-ignore-table]]
db-name = "test"
tbl-name = "log"

[dest-db]
host = "127.0.0.1"
port = 3309
user = "root"
password = ""
"""


@pytest.fixture
def shanghai(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone without summer time, eight hours ahead."""
    monkeypatch.setenv("TZ", "CST-8")
    time.tzset()


def read(*argv: str, **environ: str) -> ReparoConfig:
    return loading.load(ReparoConfig, argv, environ, program="reparo", env_prefix=ENV_PREFIX)


def read_file(tmp_path: Path, text: str, *argv: str, **environ: str) -> ReparoConfig:
    path = tmp_path / "reparo.toml"
    path.write_text(text)
    return read("-config", str(path), *argv, **environ)


def test_a_file_of_the_go_tool_means_the_same(tmp_path: Path, shanghai: None) -> None:
    config = read_file(tmp_path, GO_FILE)
    assert config.start == tso.compose(1519791132000)  # 2018-02-28 04:12:12 UTC
    assert config.stop == tso.compose(1519791133000)
    assert (config.worker_count, config.txn_batch, config.safe_mode) == (16, 20, True)
    assert config.drainer.downstream == ("127.0.0.1", 3309, "root", "")
    allows = config.rules.names.allows
    assert [allows("S1", "x"), allows("abc", "x"), allows("test", "Ab"), allows("test", "log")] == [
        *(True, False),
        *(True, False),
    ]
    assert allows("bcc", "x")
    assert not allows("s2", "x")
    assert "txn-batch = 20" in config.remarks()[0]
    rule = '[[syncer.row-rule]]\ndb-name = "a"\ntbl-name = "b"\nwhere = "c > 1"\n'
    assert "before row rules" in read_file(tmp_path, GO_FILE + rule, "-dry-run").remarks()[0]


def test_every_flag_of_the_go_tool_is_known() -> None:
    config = read(
        *("-data-dir", "d", "-start-datetime=", "-stop-datetime", "", "-start-tso", "7", "-stop-tso=9"),
        *("-txn-batch", "3", "-c", "2", "-log-file", "f", "-dest-type", "print", "-L", "warn", "-safe-mode"),
    )
    assert (config.start, config.stop, config.worker_count, config.safe_mode) == (7, 9, 2, True)
    assert (config.log_file, config.log_level, config.txn_batch) == ("f", "warn", 3)


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    text = 'data-dir = "file"\nworker-count = 1\ntxn-batch = 1\n'
    config = read_file(tmp_path, text, "-c", "3", Reparo_C="2", Reparo_TXN_BATCH="2")
    assert (config.data_dir, config.worker_count, config.txn_batch) == ("file", 3, 2)


def test_a_time_wins_over_a_timestamp(shanghai: None) -> None:
    config = read("-data-dir", "d", "-start-tso", "9", "-start-datetime", "2018-02-28 12:12:12")
    assert config.start == tso.compose(1519791132000)


def test_the_zone_of_an_archive_that_does_not_say_it_is_the_one_here(shanghai: None) -> None:
    assert read("-data-dir", "d").archive_zone == ""
    assert read("-data-dir", "d", "-time-zone", "Asia/Tokyo").archive_zone == "Asia/Tokyo"


def test_utc_here_is_utc_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert os.environ["TZ"] == "UTC"
    assert read("-data-dir", "d").archive_zone == UTC


WRONG = [
    (
        'data-dir = "d"\n[[syncer.row-rule]]\ndb-name = "a"\ntbl-name = "b"\nwhere = "c > 1"',
        "shows an archive as it is: it knows no .* row-rule",
    ),
    ("", "data-dir is empty"),
    ('data-dir = "d"\nfoo = 1', r"unknown configuration options: foo \(line 2\)"),
    ('data-dir = "d"\ndest-type = "kafka"', "dest-type 'kafka' is not supported .*print, mysql, tidb"),
    ('data-dir = "d"\ndest-type = "mysql"', r"does not say which server .*\[dest-db\]"),
    ('data-dir = "d"\nstart-datetime = "2018-02-30 00:00:00"', "start-datetime is '2018-02-30 00:00:00'"),
    ('data-dir = "d"\nstart-tso = 9\nstop-tso = 8', "the range ends at 8, before it begins at 9"),
    ('data-dir = "d"\ntxn-batch = 0', "txn-batch is 0"),
    ('data-dir = "d"\nkind = "pump"', "kind 'pump' is not supported"),
    ('data-dir = "d"\nreplicate-do-db = ["~("]', "not a regular expression"),
    (
        'data-dir = "d"\n[[replicate-ignore-table]]\ndb-name = "a"',
        "empty table name in `replicate-ignore-table`",
    ),
    ('data-dir = "d"\n[[syncer.ddl-rule]]\naction = "stopp"', "action 'stopp' is unknown"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_cannot_be_right_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_file(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_an_unknown_flag_is_said_with_the_one_that_is_meant() -> None:
    with pytest.raises(FlagError, match=r"flag provided but not defined: -dat-dir .*-data-dir"):
        read("-dat-dir", "x")
