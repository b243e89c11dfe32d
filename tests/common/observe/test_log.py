from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import pytest

from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.observe.printable import is_printable


def _line(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    return text.rstrip("\n")


def test_unified_format(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    log.get("x").info("start pump", addr="h:1", **{"key two": "v v"})
    line = _line(capsys)
    stamp, rest = line[:32], line[32:]
    assert stamp[0] == "["
    assert stamp.endswith(" +00:00]")
    assert rest.startswith(" [INFO] [test_log.py:")
    assert rest.endswith('] ["start pump"] [addr=h:1] ["key two"="v v"]')


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ('a"b', r'"a\"b"'),
        ("a\\b", r'"a\\b"'),
        ("a\nb\r\t", r'"a\nb\r\t"'),
        ("a=b", '"a=b"'),
        ("[x]", '"[x]"'),
        ("\x01", '"\\u0001"'),
        ("ü", "ü"),
        (7, "7"),
        (True, "true"),
        (None, "null"),
        ({"a": 1}, r'"{\"a\":1}"'),
        (b"row value", '"<9 bytes>"'),
        (Unavailable("no", hint="do"), '"no (do)"'),
    ],
)
def test_quoting(capsys: pytest.CaptureFixture[str], value: object, shown: str) -> None:
    log.setup()
    log.get("x").info("m", v=value)
    assert _line(capsys).endswith(f"[m] [v={shown}]")


def test_levels(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("warn")
    logger = log.get("x")
    logger.debug("d")
    logger.info("i")
    logger.warning("w")
    logger.error("e")
    lines = capsys.readouterr().out.splitlines()
    assert ["[WARN]" in lines[0], "[ERROR]" in lines[1], len(lines)] == [True, True, 2]


def test_secrets_never_appear(capsys: pytest.CaptureFixture[str]) -> None:
    canary = "c4n4ry"
    for form in ("tidb", "json"):
        log.setup("debug", format=form)
        logger = log.get("x")
        logger.info("m", password=canary, encrypted_password=canary, Secret_Key=canary, pswd=canary)
        logger.info("m", to={"user": "u", "password": canary, "list": [{"token": canary}]})
        logger.info(f"connecting to mysql://root:{canary}@host:1/", url=f"http://u:{canary}@h")
        logger.info(
            f"http://u:p/{canary}@gw:9091",
            url=f"http://u:p@{canary}@gw",
            both=f"http://a:1,http://u:{canary}/@b:2",
        )
        logger.info("m", gateway=f"u:{canary}@gw:9091", config={"MetricsAddr": f"u:{canary}@gw"})
        logger.info("m", row=canary.encode(), rows=[canary.encode()])
        logger.failure("boom", ValueError(f"http://u:{canary}@h"), password=canary)
    text = capsys.readouterr().out
    assert canary not in text
    assert log.MASK in text


def test_json_format(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup(format="json")
    log.get("x").warning('quo"te', n=1, ok=True)
    document = json.loads(_line(capsys))
    assert document["level"] == "WARN"
    assert (document["message"], document["n"], document["ok"]) == ('quo"te', 1, True)
    assert document["caller"].startswith("test_log.py:")


def test_file_output_is_private(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pump.log"
    log.setup(file=str(path))
    log.get("x").info("hello")
    assert "[hello]" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert capsys.readouterr().out == ""


def test_wrong_settings_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="log level 'loud' is unknown"):
        log.setup("loud")
    with pytest.raises(ConfigError, match="log format"):
        log.setup(format="xml")
    with pytest.raises(ConfigError, match="cannot write the log file"):
        log.setup(file=str(tmp_path / "missing" / "x.log"))


def test_setup_replaces_its_own_handler(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    log.setup()
    log.get("x").info("once")
    assert "[once]" in _line(capsys)


def test_lines_of_libraries_have_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    logging.getLogger("some.library").warning("took %d s", 3)
    assert _line(capsys).endswith('] ["took 3 s"]')


def test_repeats_are_cut_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    log.setup(clock=clock)
    logger = log.get("x")
    for number in range(log.REPEATS_MAX + 12):
        logger.warning("again", number=number)
        logger.info("other") if number == 5 else None
    assert len(capsys.readouterr().out.splitlines()) == log.REPEATS_MAX + 1
    clock.advance(log.REPEATS_WINDOW_S)
    logger.warning("again")
    assert _line(capsys).endswith("[again] [suppressed=12]")
    logger.warning("again")
    assert _line(capsys).endswith("[again]")


def test_failure_carries_the_traceback_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    try:
        raise ValueError("bad")
    except ValueError as error:
        log.get("x").failure("boom", error)
    line = _line(capsys)
    assert '[error="ValueError: bad"]' in line
    assert "errorVerbose" in line
    assert "test_log.py" in line


def test_text_from_outside_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("tidb", "json"):
        log.setup("debug", format=form)
        log.get("x").info("a\x1b[2Jb", name="c\x9b1m\u202ed\ud800", names=["\x7f"])
    text = capsys.readouterr().out
    assert all(is_printable(line) for line in text.splitlines())
    assert len(text.splitlines()) == 2


def test_a_list_of_urls_keeps_its_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    log.get("x").info("m", urls="http://a:2379,http://u:p@b:2379,http://c:2379")
    assert f"http://a:2379,http://u:{log.MASK}@b:2379,http://c:2379" in capsys.readouterr().out
