"""What shells are given to complete binlogctl's command line, and what a real one offers with it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from binlogctl.cli import commands
from binlogctl.cli.command_line import Call, parse
from binlogctl.commands import completion
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def bash() -> str:
    return completion.script("bash")


async def test_scripts_of_all_shells_name_all_commands_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        call = parse(["completion", shell], {})
        assert isinstance(call, Call)
        assert await completion.run(call) == 0
        told = capsys.readouterr().out
        for command in commands.worded():
            assert all(word in told for word in command.words.split()), (shell, command.words)
            assert all(
                flag in told for flag in (*command.flags, *(("output",) if command.outputs else ()))
            ), (shell, command.words)


def offered(script: str, *words: str) -> set[str]:
    """What bash offers for the last word."""
    ask = (
        f"{script}\nCOMP_WORDS=(binlogctl {' '.join(map(repr, words))})\nCOMP_CWORD={len(words)}\n"
        'function=$(complete -p binlogctl | sed -e "s/.* -F //" -e "s/ .*//")\n'
        'compopt() { :; }\n"$function"\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", ask],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes(bash: str) -> None:
    assert {command.words.split()[0] for command in commands.worded()} <= offered(bash, "")
    assert offered(bash, "no") == {"nodes"}
    assert offered(bash, "config", "") == {"check", "show", "new", "docs", "schema"}
    assert offered(bash, "ddl", "re") == {"retry", "rewrite"}
    assert offered(bash, "close", "n", "-f") == {"-force"}
    assert offered(bash, "close", "n", "--f") == {"--force"}
    assert offered(bash, "-pd-urls", "x", "forget", "n", "-y") == {"-yes"}
    assert offered(bash, "completion", "") == {"bash", "zsh", "fish"}
    assert offered(bash, "-cmd", "pause") == {"pause-pump", "pause-drainer"}
    assert offered(bash, "nodes", "-output", "") == {"table", "json"}
    assert offered(bash, "status", "--output", "j") == {"json"}
    assert "pyproject.toml" in offered(bash, "config", "check", "pypro")
    assert "docs" in offered(bash, "verify", "-archive", "doc")


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_the_shell_can_read_it(shell: str, check: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        print(f"{shell} is not on this machine: what is made for it was only looked through")
        return
    file = tmp_path / f"completion.{shell}"
    file.write_text(completion.script(shell))
    done = subprocess.run([shell, check, str(file)], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_completes() -> None:
    if shutil.which("fish") is None:
        print("fish is not on this machine: what is made for it was only looked through")
        return

    def offered(line: str) -> set[str]:
        ask = f"source (echo $script | psub); complete -C '{line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", ask],
            env={"script": completion.script("fish"), "PATH": os.environ["PATH"], "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return {one.partition("\t")[0] for one in done.stdout.splitlines()}

    assert offered("binlogctl ddl re") == {"retry", "rewrite"}
    assert offered("binlogctl close n -for") == {"-force"}
    assert offered("binlogctl close n --for") == {"--force"}
    assert offered("binlogctl -cmd pause") == {"pause-pump", "pause-drainer"}
