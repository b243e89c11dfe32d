"""Completion: scripts for bash, zsh and fish, which shtab makes from the parsers.

Holds  every command, every flag of each and every choice is offered; files where a command or flag takes one
Tests  tests/deploy/binlogctl/cli/test_completion.py
"""

from __future__ import annotations

import re
import sys

from binlogctl.cli import commands, parsers
from binlogctl.cli.command_line import Call
from binlogctl.cli.commands import DONE, Command


def choices(flag: str, command: Command | None) -> tuple[str, ...]:
    """What a flag's value may be; none: anything."""
    if flag == "cmd":
        return tuple(commands.cmds())
    if flag == "output":
        return (*commands.READABLE, commands.LOG) if command is None else command.outputs
    if flag == "upstream":
        return ("auto", "tidb", "standalone")
    if flag == "kind":
        return ("pump", "drainer")
    if flag == "sort":
        from binlogctl.cluster.top_view import SORTS

        return tuple(SORTS)
    if flag == "state" and command is None:
        from tidb_binlog.cluster.node import STATES

        return STATES
    return ()


def script(shell: str) -> str:
    """What the shell is to run."""
    import shtab  # no other command needs it

    text: str = shtab.complete(parsers.completed(choices), shell)
    if shell == "fish":  # shtab says -s of every flag with one dash; that is for those of one letter
        text = re.sub(r" -s ([\w-]{2,})", r" -o \1", text)
    return f"{text}\n"


async def run(call: Call) -> int:
    """Print the script of one shell."""
    sys.stdout.write(script(call.words[0]))
    return DONE
