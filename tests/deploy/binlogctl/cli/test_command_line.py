"""The table of commands: what is understood, what is refused, what help and completion say."""

from __future__ import annotations

import importlib
import inspect

import pytest

from binlogctl.cli import commands, parsers
from binlogctl.cli.command_line import Call, Help, parse
from binlogctl.cli.commands import TABLE_OF_COMMANDS, TEXTS
from binlogctl.cli.settings import CtlSettings
from tests.cases import case
from tidb_binlog import version
from tidb_binlog.config import declaring
from tidb_binlog.errors import FlagError

FLAGS = {entry.flag for entry in declaring.options(CtlSettings).values()}


def called(*argv: str) -> Call:
    found = parse(argv, {})
    assert isinstance(found, Call)
    return found


def test_every_command_has_a_function_known_flags_and_a_help() -> None:
    for command in TABLE_OF_COMMANDS:
        with case(command):
            module, _, function = command.run.partition(":")
            home = importlib.import_module(f"binlogctl.commands.{module}")
            assert inspect.iscoroutinefunction(getattr(home, function))
            assert {*command.flags, *(("output",) if command.outputs else ())} <= FLAGS
            helped = parsers.of_command(command).format_help()
            assert all(len(line) <= 100 for line in helped.splitlines())
            for flag in (*command.flags, *(("output",) if command.outputs else ())):
                assert f"  -{flag}" in helped
            if command.words:
                assert parse([*command.words.split(), "-h"], {}) == Help(helped)
                assert parse(["help", *command.words.split()], {}) == Help(helped)
                assert parse(["-output=json", *command.words.split(), "--help"], {}) == Help(helped)


def test_the_help_of_all_names_every_command_and_exit_code() -> None:
    helped = parse(["-h"], {})
    assert isinstance(helped, Help)
    for command in commands.worded():
        first, _, second = command.words.partition(" ")
        assert f"    {first} " in helped.text
        assert second in helped.text
        grouped = parse([first, "-h"], {})
        assert isinstance(grouped, Help)
        assert commands.EXIT_CODES in grouped.text
        assert f"\n    {second}" in grouped.text or not second
    for cmd in commands.cmds():
        assert f"  {cmd} " in helped.text
    assert parse(["-V"], {}) == parse(["--version"], {}) == Help(version.text())


def test_words_and_flags_in_any_order() -> None:
    for argv in (
        ("close", "n", "-timeout", "5s", "-force"),
        ("--timeout=5s", "close", "--force", "n"),
        ("-force=true", "close", "-timeout=5s", "--", "n"),
    ):
        call = called(*argv)
        assert (call.command.words, call.words) == ("close", ("n",))
        assert (call.settings.timeout_s, call.settings.force) == (5.0, True)
    assert not called("close", "n", "-force=false").settings.force
    assert called("position", "-2h").words == ("-2h",)
    assert called("tail", "-from", "-10m", "--where=a = 1").settings.begin == "-10m"
    assert called("config", "check", "f").command.words == "config check"
    assert called("ddl", "rewrite", "7", "--text", "-x").settings.text == "-x"


def test_the_go_form() -> None:
    call = called("-cmd", "ddl-skip", "-job-id", "7")
    assert (call.command.words, call.words, call.output, call.is_go) == ("ddl skip", ("7",), "log", True)
    assert called().command.cmd == "pumps"
    assert called("-data-dir", "x", "-text", "y", "-show-offline-nodes").command.cmd == "pumps"
    go = {"pumps", "drainers", "update-pump", "update-drainer", "pause-pump", "pause-drainer"}
    assert go | {"offline-pump", "offline-drainer", "generate_meta", "encrypt"} <= set(commands.cmds())


def test_only_where_to_connect_comes_from_the_environment() -> None:
    environ = {"BINLOGCTL_PD_URLS": "http://h:1", "BINLOGCTL_YES": "true", "BINLOGCTL_OUTPUT": "json"}
    call = parse(["forget", "n"], environ)
    assert isinstance(call, Call)
    assert (call.settings.pd_urls, call.settings.yes, call.output) == ("http://h:1", False, "")
    found = parse(["nodes", "-pd-urls", "http://i:1"], environ)
    assert isinstance(found, Call)
    assert (found.settings.pd_urls, found.output) == ("http://i:1", "json")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["nods"], "'nods' is no command (did you mean nodes?)"),
        (
            ["config"],
            "config: nothing is no command of it "
            "(binlogctl config check FILE|show FILE|new KIND|docs KIND|schema KIND)",
        ),
        (["pause"], "the following arguments are required: NODE"),
        (["pause", "a", "b"], "'b' is one word too many"),
        (["nodes", "-text", "x"], "nodes takes no -text (see binlogctl nodes -h)"),
        (["forget", "n", "--forse"], "flag provided but not defined: -forse (did you mean -force?)"),
        (["nodes", "-config", "x"], "flag provided but not defined: -config"),
        (["nodes", "-cmd", "pumps"], "nodes and -cmd are two commands"),
        (["completion", "tcsh"], "SHELL: invalid choice: 'tcsh' (choose from"),
        (["close", "n", "-force=maybe"], "flag -force: invalid value 'maybe'"),
        (["close", "n", "-timeout"], "flag -timeout: expected one argument"),
        (["nodes", "--outpu", "json"], "flag provided but not defined: -outpu (did you mean -output?)"),
        (["nodes", "-output", "log"], "output 'log' is unknown (use table, json)"),
        (["close", "n", "-timeout", "soon"], "flag -timeout: invalid value 'soon'"),
    ],
)
def test_refused(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError) as error:
        parse(argv, {})
    assert text in str(error.value)
    assert error.value.exit_code == 2


def test_a_cmd_without_a_name_is_no_command() -> None:
    """`-cmd "$CMD"` of a script whose variable is empty."""
    with pytest.raises(FlagError, match="not supported"):
        parse(["-cmd", ""], {})


def test_help_fits_a_narrow_terminal_and_commands_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        for words, parser in parsers.tree().items():
            for line in parser.format_help().splitlines():
                assert len(line) <= columns or line.startswith("binlogctl "), (words, line)
    assert (
        'zsh: eval "$(binlogctl completion zsh)"' in parsers.tree()["completion"].format_help().splitlines()
    )
    restore = parsers.tree()["restore"].format_help().splitlines()
    assert "to -until (without it: to its end), and compares the result with both. Without" in restore
    monkeypatch.setenv("COLUMNS", "60")
    shown = parsers.tree()["tail"].format_help()
    assert TEXTS["tail"].splitlines()[-1] in shown.splitlines()
    prose = " ".join(TEXTS["tail"].splitlines()[:-1])
    assert prose in " ".join(shown.split())
