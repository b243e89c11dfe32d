"""Entry point of binlogctl: reads the command line and runs the one command it names.

Only what a command needs is imported: scripts call this often.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Awaitable, Callable

from common.errors import BinlogError
from common.observe import log
from deploy.ctl.cli import command_line
from deploy.ctl.cli.command_line import Call, Help
from deploy.ctl.cli.parsers import PROGRAM

_logger = log.get("ctl")


def handler(call: Call) -> Callable[[Call], Awaitable[int]]:
    """The function that runs a command."""
    module, _, function = call.command.run.partition(":")
    found: Callable[[Call], Awaitable[int]] = getattr(
        importlib.import_module(f"deploy.ctl.commands.{module}"), function
    )
    return found


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
    from common.process import daemon

    try:
        daemon.main(PROGRAM, run)
    except BrokenPipeError:  # `binlogctl nodes | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
