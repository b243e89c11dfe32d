from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidb_binlog.config import declaring, loading
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError, FlagError


@dataclass(frozen=True, slots=True)
class Example:
    addr: str = option("127.0.0.1:8250", key="addr", flag="addr", help="listen here")
    workers: int = option(16, key="syncer.worker-count", flag="c", kind="int", help="lanes")
    ratio: float = option(0.5, key="storage.ratio", kind="float", help="share")
    sync_log: bool = option(True, key="storage.sync-log", flag="sync-log", kind="bool", help="fsync")
    stop_at: int = option("10 GiB", key="storage.stop-write-at-available-space", kind="size", help="space")
    interval_s: float = option(
        "2", key="heartbeat-interval", flag="heartbeat-interval", kind="duration", help=""
    )
    gc_s: float = option("7", key="gc", flag="gc", kind="retention", help="keep")
    ignore: tuple[str, ...] = option(("a",), key="syncer.ignore", flag="ignore", kind="list", help="skip")
    password: str = option("", key="syncer.to.password", flag="password", help="secret")
    params: Mapping[str, Any] = option(None, key="syncer.to.params", kind="table", help="session")
    rules: tuple[dict[str, str], ...] = option((), key="syncer.do-table", kind="tables", help="rules")
    old: str = option("", key=None, flag="log-rotate", help="gone", deprecated=True)

    def validate(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"worker-count is {self.workers}", hint="use at least 1")


def load(*argv: str, env: dict[str, str] | None = None) -> Example:
    return loading.load(Example, argv, env or {}, program="drainer", env_prefix="BINLOG_SERVER")


def write(path: Path, text: str) -> str:
    file = path / "drainer.toml"
    file.write_text(text)
    return str(file)


def test_defaults() -> None:
    loaded = load()
    assert (loaded.stop_at, loaded.interval_s, loaded.gc_s) == (10 << 30, 2.0, 7 * 86400.0)
    assert (loaded.ignore, loaded.params, loaded.rules) == (("a",), {}, ())


def test_every_kind_from_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
addr = "h:1"
gc = 3
heartbeat-interval = "1m30s"
[storage]
ratio = 1
sync-log = false
stop-write-at-available-space = "42 mib"
[syncer]
worker-count = 2
ignore = ["x", "y"]
[[syncer.do-table]]
db-name = "d"
tbl-name = "t"
[syncer.to]
password = "p"
params = { time_zone = "UTC" }
""",
    )
    loaded = load("-config", path)
    assert loaded == Example(
        "h:1",
        2,
        1.0,
        False,
        44_040_192,
        90.0,
        3 * 86400.0,
        ("x", "y"),
        "p",
        {"time_zone": "UTC"},
        ({"db-name": "d", "tbl-name": "t"},),
    )


@pytest.mark.parametrize(
    ("cli", "env", "file"),
    list(itertools.product([False, True], repeat=3)),
    ids=lambda on: "+" if on else "-",
)
def test_precedence_matrix(tmp_path: Path, cli: bool, env: bool, file: bool) -> None:
    argv = ["--config", write(tmp_path, "[syncer]\nworker-count = 3\n" if file else "")]
    argv += ["-c", "1"] if cli else []
    loaded = load(*argv, env={"BINLOG_SERVER_C": "2"} if env else {})
    assert loaded.workers == (1 if cli else 2 if env else 3 if file else 16)


def test_an_empty_environment_value_does_not_count(tmp_path: Path) -> None:
    path = write(tmp_path, 'addr = "file:1"')
    assert load("-config", path, env={"BINLOG_SERVER_ADDR": ""}).addr == "file:1"


@pytest.mark.parametrize(
    ("argv", "addr", "sync"),
    [
        (["-addr", "x:1"], "x:1", True),
        (["--addr", "x:1"], "x:1", True),
        (["-addr=x:1"], "x:1", True),
        (["--addr=x=1"], "x=1", True),
        (["-sync-log"], "127.0.0.1:8250", True),
        (["-sync-log=false", "--"], "127.0.0.1:8250", False),
        (["-addr="], "", True),
        (["-log-rotate", "day"], "127.0.0.1:8250", True),
    ],
)
def test_flag_forms(argv: list[str], addr: str, sync: bool) -> None:
    loaded = load(*argv)
    assert (loaded.addr, loaded.sync_log) == (addr, sync)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-adr", "x"], "flag provided but not defined: -adr (did you mean -addr?)"),
        (["---addr", "x"], "flag provided but not defined: -addr"),
        (["-addr"], "flag needs an argument: -addr (see drainer -h)"),
        (["stray"], "'stray' is not a valid flag (see drainer -h)"),
        (["-c", "many"], "flag -c: invalid value 'many': a whole number is expected (see drainer -h)"),
        (["-sync-log=maybe"], "flag -sync-log: invalid value 'maybe': true or false is expected"),
        (["-gc", "7d"], "unsupported gc time 7d"),
    ],
)
def test_flag_errors_are_one_line_with_code_2(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError) as caught:
        load(*argv)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("toml", "line", "hint"),
    [
        ('adr = "x"', 1, "did you mean addr?"),
        ('addr = "x"\n\n[storage]\nsync_log = true', 4, "did you mean storage.sync-log?"),
        ("[storge]\nsync-log = true", 1, "did you mean storage?"),
        ("[syncer.to]\n\npasword = 'x'", 3, "did you mean syncer.to.password?"),
        ("[syncer]\nto = { pasword = 'x' }", 2, "did you mean syncer.to.password?"),
        ("syncer.worker-cont = 3", 1, "did you mean syncer.worker-count?"),
        ("# addr\n'qq' = 1", 2, "see `drainer -h` for the known ones"),
        ("[syncer]\nqq = 1", 2, "see `drainer -h` for the known ones"),
    ],
)
def test_unknown_key_names_line_and_neighbour(tmp_path: Path, toml: str, line: int, hint: str) -> None:
    path = write(tmp_path, toml)
    with pytest.raises(ConfigError) as caught:
        load("-config", path)
    assert f"drainer's config file {path} contained unknown configuration options:" in str(caught.value)
    assert f"(line {line})" in caught.value.message
    assert caught.value.hint == hint
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("toml", "text"),
    [
        ("addr = 1", "line 1: addr: a text in quotes is expected"),
        ("\n[syncer]\nworker-count = '3'", "line 3: syncer.worker-count: a whole number is expected"),
        ("[syncer]\nworker-count = true", "line 2: syncer.worker-count: a whole number is expected"),
        ("[storage]\nsync-log = 1", "line 2: storage.sync-log: true or false is expected"),
        ("[storage]\nratio = 'x'", "line 2: storage.ratio: a number is expected"),
        ("[storage]\nratio = nan", "line 2: storage.ratio: a number is expected"),
        ("[storage]\nratio = inf", "line 2: storage.ratio: a number is expected"),
        ("heartbeat-interval = nan", "line 1: heartbeat-interval: a duration of at most"),
        ("heartbeat-interval = inf", "line 1: heartbeat-interval: a duration of at most"),
        ("heartbeat-interval = '%s'" % ("9" * 400), "line 1: heartbeat-interval: a duration of at most"),
        ("[syncer]\nignore = [10]", "line 2: syncer.ignore: a list of texts is expected"),
        ("[storage]\nstop-write-at-available-space = '9 XB'", "unhandled size name: XB"),
        ("heartbeat-interval = '7d'", "line 1: heartbeat-interval: a duration like"),
        ("gc = 0", "line 1: gc: GC is 0, must bigger than 0"),
        ("[syncer]\nignore = 'x'", "line 2: syncer.ignore: a list is expected"),
        ("[syncer]\nignore = [[1]]", "a list of texts is expected"),
        ("[syncer]\ndo-table = 1", "line 2: syncer.do-table: a list of tables is expected"),
        ("[syncer.to]\nparams = 1", "line 2: syncer.to.params: a table is expected"),
    ],
)
def test_wrong_type_names_key_line_and_expectation(tmp_path: Path, toml: str, text: str) -> None:
    path = write(tmp_path, toml)
    with pytest.raises(ConfigError) as caught:
        load("-config", path)
    assert f"config file {path} " in str(caught.value)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config file /no/where: No such file"):
        load("-config", "/no/where")
    with pytest.raises(ConfigError, match=r"is not TOML: .*line 1"):
        load("-config", write(tmp_path, "addr = \n"))
    (tmp_path / "bytes.toml").write_bytes(b"addr = '\xff'")
    with pytest.raises(ConfigError, match="is not TOML"):
        load("-config", str(tmp_path / "bytes.toml"))
    with pytest.raises(ConfigError, match="is not TOML"):
        load("-config", write(tmp_path, f"addr = {'[' * 100_000}"))


def test_an_empty_file_ends_no_filter_of_who_runs(tmp_path: Path) -> None:
    path = write(tmp_path, "\n")
    assert load("-config", path) == load()
    with pytest.raises(ConfigError, match=f"config file {path} is empty"):
        loading.load(Example, ["-config", path], {}, program="drainer", env_prefix="X", again=True)


def test_keys_match_in_another_case_too(tmp_path: Path) -> None:
    assert load("-config", write(tmp_path, "Addr = 'x'\n[Syncer]\nWorker-Count = 4")).workers == 4


def test_wrong_environment_value_is_named() -> None:
    with pytest.raises(ConfigError, match="environment variable BINLOG_SERVER_C is 'x': a whole number"):
        load(env={"BINLOG_SERVER_C": "x"})


def test_validate_has_the_last_word() -> None:
    with pytest.raises(ConfigError, match="worker-count is 0"):
        load("-c", "0")


def test_what_is_wrong_between_values_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, "[syncer]\nworker-count = 0")
    with pytest.raises(ConfigError, match="worker-count is 0") as caught:
        load("-config", path)
    assert caught.value.message == f"worker-count is 0 [{path}:2]"
    with pytest.raises(ConfigError) as caught:
        load("-config", path, "-c", "-1")
    assert caught.value.message == "worker-count is -1 [-c]", "what is in force"

    def check(_: Example) -> None:
        raise ConfigError("it is odd", hint="storage.ratio and gc are too much")

    path = write(tmp_path, "gc = 1\n[storage]\nratio = 2.0")
    problems, _ = loading.examine(Example, path, {}, program="drainer", env_prefix="X", check=check)
    assert [problem.message for problem in problems] == [f"it is odd [{path}:3]"]


def test_a_file_that_is_none_of_ours_is_told_in_time(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(f"unknown-{number} = 1\n" for number in range(4000)))
    problems, _ = loading.examine(Example, path, {}, program="drainer", env_prefix="X")
    assert len(problems) == loading.PROBLEMS_MAX + 1
    assert "not looked at" in problems[-1].message


def test_a_value_that_is_very_long_is_told_in_time(tmp_path: Path) -> None:
    def check(_: Example) -> None:
        raise ConfigError("x" * 500_000, hint="give another one")

    path = write(tmp_path, "gc = 1")
    problems, _ = loading.examine(Example, path, {}, program="drainer", env_prefix="X", check=check)
    assert [problem.hint for problem in problems] == ["give another one"]


def test_list_from_the_command_line() -> None:
    assert load("-ignore", "x, y,,z").ignore == ("x", "y", "z")


def test_secrets_are_masked_everywhere(tmp_path: Path) -> None:
    loaded = load(
        "-config", write(tmp_path, "[syncer.to]\npassword = 'c4n4ry'\nparams = {password='c4n4ry'}")
    )
    described = loading.describe(loaded)
    assert described["syncer.to.password"] == "******"
    assert described["addr"] == "127.0.0.1:8250"
    assert "log-rotate" not in described
    assert "c4n4ry" not in repr(described)
    assert "c4n4ry" not in repr(load("-password", "c4n4ry"))
    assert "c4n4ry" not in loading.usage(Example, "drainer", "D")


def test_version_and_help_end_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("-V", "--V", "-version", "--version", "-h", "--help"):
        with pytest.raises(SystemExit) as caught:
            load(flag)
        assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "Release Version: " in text
    assert "-heartbeat-interval duration" in text
    assert "log-rotate" not in text
    assert load("-V=false").workers == 16


def test_what_users_are_told_is_said_where_an_option_is_declared() -> None:
    @dataclass(frozen=True, slots=True)
    class Told:
        size: int = option(
            "10 GiB", key="size", kind="size", help="room", more="Less is refused.", live=True, starter=True
        )
        plain: int = option(5, key="plain", kind="int", unit="minutes", help="pause", example="plain = 7")

    size, plain = declaring.options(Told).values()
    assert (size.written, size.more, size.live, size.starter) == ("10 GiB", "Less is refused.", True, True)
    assert (plain.unit, plain.example, plain.live, plain.starter) == ("minutes", "plain = 7", False, False)
