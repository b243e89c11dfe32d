"""Program: entry point of binlogctl: reads the command line and runs the one command it names.

Only what a command needs is imported: scripts call this often.

Tests  tests/deploy/binlogctl/cli/test_command_line.py
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Awaitable, Callable

from binlogctl.cli import command_line
from binlogctl.cli.command_line import Call, Help
from binlogctl.cli.parsers import PROGRAM
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log

_logger = log.get("ctl")


def handler(call: Call) -> Callable[[Call], Awaitable[int]]:
    """The function that runs a command."""
    module, _, function = call.command.run.partition(":")
    runner: Callable[[Call], Awaitable[int]] = getattr(
        importlib.import_module(f"binlogctl.commands.{module}"), function
    )
    return runner


async def run(argv: list[str]) -> int:
    """The program; returns the exit code or raises the error that has one."""
    call = command_line.parse(argv, os.environ)
    if isinstance(call, Help):
        sys.stdout.write(call.text)
        return 0
    log.setup()
    try:
        return await handler(call)(call)
    except BinlogError as error:
        if call.is_go:
            _logger.fatal("fail to execute command", command=call.command.cmd, error=error.message)
        raise


def main() -> None:
    """Console script."""
    from tidb_binlog.process import daemon

    try:
        daemon.main(PROGRAM, run)
    except BrokenPipeError:  # `binlogctl nodes | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
