"""The table of commands: what is understood, what is refused, what help and completion say."""

from __future__ import annotations

import importlib
import inspect
import subprocess

import pytest

from common.config import declaring
from common.errors import FlagError
from deploy.ctl.cli import command_line, commands
from deploy.ctl.cli.command_line import Call, Help, parse
from deploy.ctl.cli.commands import TABLE_OF_COMMANDS, Command
from deploy.ctl.cli.settings import CtlSettings
from deploy.ctl.commands import completion

FLAGS = {entry.flag for entry in declaring.options(CtlSettings).values()}


def called(*argv: str) -> Call:
    found = parse(argv, {})
    assert isinstance(found, Call)
    return found


@pytest.mark.parametrize("command", TABLE_OF_COMMANDS, ids=lambda command: command.usage)
def test_every_command_has_a_function_known_flags_and_a_help(command: Command) -> None:
    module, _, function = command.run.partition(":")
    home = importlib.import_module(f"deploy.ctl.commands.{module}")
    assert inspect.iscoroutinefunction(getattr(home, function))
    assert set(command.all_flags) <= FLAGS
    assert all(len(line) <= 100 for line in command_line.of_command(command).splitlines())
    for flag in command.all_flags:
        assert f"  -{flag}" in command_line.of_command(command)
    if command.words:
        helped = parse([*command.words.split(), "-h"], {})
        assert helped == Help(command_line.of_command(command))
        assert parse(["help", *command.words.split()], {}) == helped
        assert command.usage in command_line.overview()


def test_words_and_flags_in_any_order() -> None:
    for argv in (
        ("close", "n", "-timeout", "5s", "-force"),
        ("--timeout=5s", "close", "--force", "n"),
        ("-force=true", "close", "-timeout=5s", "--", "n"),
    ):
        call = called(*argv)
        assert (call.command.words, call.words) == ("close", ("n",))
        assert (call.settings.timeout_s, call.settings.force) == (5.0, True)
    assert called("position", "-2h").words == ("-2h",)
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
        (["config"], "config: nothing is no command of it (binlogctl config check FILE|show FILE)"),
        (["pause"], "pause needs NODE (binlogctl pause NODE)"),
        (["pause", "a", "b"], "'b' is one word too many"),
        (["nodes", "-text", "x"], "nodes takes no -text (see binlogctl nodes -h)"),
        (["forget", "n", "--forse"], "flag provided but not defined: -forse (did you mean -force?)"),
        (["nodes", "-config", "x"], "flag provided but not defined: -config"),
        (["nodes", "-cmd", "pumps"], "nodes and -cmd are two commands"),
        (["completion", "tcsh"], "completion: SHELL is 'tcsh' (use bash, zsh, fish)"),
        (["nodes", "-output", "log"], "output 'log' is unknown (use table, json)"),
        (["close", "n", "-timeout", "soon"], "flag -timeout: invalid value 'soon'"),
    ],
)
def test_refused(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError) as error:
        parse(argv, {})
    assert text in str(error.value)
    assert error.value.exit_code == 2


def offered(*words: str) -> set[str]:
    """What bash offers for the last word."""
    script = completion.bash() + (
        f"COMP_WORDS=(binlogctl {' '.join(repr(word) for word in words)}); COMP_CWORD={len(words)}\n"
        '_binlogctl; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes() -> None:
    first = offered("")
    assert {command.words.split()[0] for command in commands.worded()} <= first
    assert offered("no") == {"nodes"}
    assert offered("config", "") == {"check", "show"}
    assert offered("ddl", "re") == {"retry", "rewrite"}
    assert offered("close", "n", "-f") == {"-force"}
    assert offered("-pd-urls", "http://x:1", "forget", "n", "-y") == {"-yes"}
    assert offered("completion", "") == {"bash", "zsh", "fish"}
    assert offered("-cmd", "pause") == {"pause-pump", "pause-drainer"}
    assert offered("nodes", "-output", "") == {"table", "json"}
    assert "pyproject.toml" in offered("config", "check", "pypro")


async def test_scripts_of_all_shells_name_all_commands_and_flags(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert await completion.run(called("completion", shell)) == 0
        told = capsys.readouterr().out
        for command in commands.worded():
            assert all(word in told for word in command.words.split()), (shell, command.words)
            assert all(flag in told for flag in command.all_flags), (shell, command.words)
