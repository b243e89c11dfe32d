"""The shared command line: what it takes, what it refuses, and that no password can be read from outside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drainer.spark import arguments
from drainer.spark.arguments import Parser
from drainer.spark.program import names, parser, run
from tests.spark.support.arguments import parsed
from tidb_binlog import tso
from tidb_binlog.errors import BinlogError, ConfigError, FlagError

MOMENT_MS = 1_795_316_645_000  # 2026-11-22 03:04:05 UTC


def test_metrics_go_where_they_are_asked_for_and_nowhere_else() -> None:
    made = Parser(prog="x")
    arguments.add_metrics(made)
    assert made.parse_args([]).metrics == ""
    assert made.parse_args(["--metrics", "job.prom"]).metrics == "job.prom"
    with pytest.raises(FlagError, match="neither"):
        made.parse_args(["--metrics", "/tmp"])


@pytest.mark.parametrize("name", names())
def test_no_option_has_the_name_of_what_a_run_brings_along(name: str) -> None:
    command = next(one for one in parser(name)._subparsers._group_actions[0].choices.values())  # type: ignore[union-attr, index]
    assert not {"job_metrics", "run"} & {action.dest for action in command._actions}


def test_a_time_is_its_first_timestamp_as_start_and_its_last_one_as_stop() -> None:
    args = parsed("--from", "a", "--start", "2026-11-22 03:04:05", "--stop", "2026-11-22 03:04:05")
    assert args.start == tso.compose(MOMENT_MS)
    assert args.start < args.stop
    assert args.stop & tso.LOGICAL_MAX == tso.LOGICAL_MAX


def test_options_of_the_source_are_what_was_given_and_nothing_else() -> None:
    assert arguments.source_options(parsed("--archive", "a")) == {}
    args = parsed(
        "--archive=a",
        "--kind=pb",
        "--start=5",
        "--tables=shop.*,~^log{1,2}[.]x$",
        "--ops=insert,delete",
        "--damage=report",
        "--fs=region=eu",
        "--ddl-history=jobs.gz",
    )
    assert arguments.source_options(args, view="ddl", table="") == {
        "kind": "pb",
        "start": "5",
        "tables": "shop.*,~^log{1,2}[.]x$",
        "ops": "insert,delete",
        "damage": "report",
        "fs.region": "eu",
        "ddl-history": "jobs.gz",
        "view": "ddl",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        ["--start", "yesterday"],
        ["--tables", "~["],
        ["--ops", "upsert"],
        ["--conf", "spark.driver.memory"],
        ["--fs", "=x"],
        ["--output", "xml"],
        ["--tab", "a"],
    ],
)
def test_what_cannot_be_read_is_told_before_spark_starts(wrong: list[str]) -> None:
    with pytest.raises(ConfigError):
        parsed("--archive", "a", *wrong)


@pytest.mark.parametrize(
    "wrong", [["--archive=no/such"], ["--archive=.", "--start=2026-11-22", "--stop=2026-11-21"]]
)
def test_what_is_wrong_with_archive_or_range_needs_no_spark(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")  # a session would say so
    with pytest.raises(ConfigError, match=r"no directory no/such|before it begins"):
        arguments.check(parsed(*wrong))


def test_a_database_with_its_password_from_the_environment_or_a_file(tmp_path: Path) -> None:
    args = parsed("--archive=a", "--to=mysql://app%40x@db.example:3307/")
    target = arguments.database(args, {"BINLOG_SPARK_PASSWORD": "sesame"})
    assert (target.host, target.port, target.user, target.password) == (
        "db.example",
        3307,
        "app@x",
        "sesame",
    )
    assert "sesame" not in repr(target)
    assert target.tls is None
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    args = parsed("--archive=a", "--to=mysql://u@/?socket=/run/db.sock", f"--password-file={secret}")
    target = arguments.database(args, {})
    assert (target.socket, target.password) == ("/run/db.sock", "from a file")
    assert arguments.database(parsed("--archive=a", "--to=tidb://h"), {}).port == 4000


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:sesame@h/",
        "postgres://u@h/",
        "h:3306",
        "mysql://u@h/shop",
        "mysql://u@h/?ssl=on",
        "mysql://u@h:x/",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(FlagError) as refused:
        arguments.database(parsed("--archive=a", f"--to={url}"), {})
    assert "sesame" not in str(refused.value)
    assert refused.value.hint


def test_a_certificate_without_an_authority_would_mean_no_tls() -> None:
    with pytest.raises(ConfigError):
        arguments.database(parsed("--archive=a", "--to=mysql://u@h", "--ssl-cert=c", "--ssl-key=k"), {})


def test_every_command_tells_what_it_is_and_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["--help"])
    assert ended.value.code == 0
    overview = capsys.readouterr().out
    for name in names():
        assert re.search(rf"^    {name}\b", overview, re.M)
        with pytest.raises(SystemExit) as ended:
            parser().parse_args([name, "--help"])
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        assert f"binlog-spark {name} --" in printed, f"{name} --help has no example"
        assert all(len(line) <= 110 for line in printed.splitlines())


def test_unknown_commands_and_flags_are_one_line_with_exit_code_2() -> None:
    for argv in ([], ["fly"], ["read"], ["read", "--archive", "a", "--fly"]):
        with pytest.raises(BinlogError) as refused:
            run(argv)
        assert refused.value.exit_code == 2
        assert "--help" in refused.value.hint
