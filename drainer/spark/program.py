"""Entry point of binlog-spark: finds the commands, reads the command line, runs one of them.

A command is a module of `drainer.spark.commands` with `HELP` (first line: the summary),
`add_arguments(parser)` and `run(args)`, which returns the exit code. It imports what costs time in `run`; one
command does not load the others.

Tests  tests/spark/test_arguments.py
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from types import ModuleType
from typing import Final

from drainer.spark import arguments, commands, driver
from drainer.spark.arguments import Parser
from drainer.spark.replay import job_metrics
from tidb_binlog import clock, version
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log
from tidb_binlog.process import daemon

PROGRAM: Final = "binlog-spark"
_TEXT: Final = """\
Archives of binlogs as tables: read, replay, audit and rewind them with Spark.

An archive is a directory of segments: what a Drainer with db-type = "file" writes (the Go Drainer's too), a
Drainer's relay log, or a Pump's value log. Everything runs on this host's cores, on a cluster with --master,
or under spark-submit. Without these, read, files, stats and history need no Spark and no Java, nor do audit,
image and flashback of a small range.
"""
_AFTER: Final = """\
A TIME is a commit timestamp (TSO) or a time in UTC ('2026-11-22 03:04:05'). A time as --start means its first
timestamp, as --stop its last one; both ends are included.

exit status: 0 done, nothing found  1 wrong configuration  2 wrong flag, or a failure of the program
  3 a database, file system or cluster does not answer  4 it refused  5 another job works on the same
  6 the archive is damaged  7 the database refused a row, a DDL or the login
  16 + 1 coverage + 2 chains + 4 contents: what an audit (or `files`) found
  130 interrupted: what was done stays done, the same command continues from there

binlog-spark COMMAND --help tells more of a command.
"""


def load(name: str) -> ModuleType:
    """The module of a command."""
    return importlib.import_module(f"{commands.__name__}.{name}")


def names() -> list[str]:
    """All commands, in the order of the alphabet."""
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))


def parser(only: str = "") -> Parser:
    """The whole command line; with `only` what that one command needs of it."""
    parser = Parser(prog=PROGRAM, description=_TEXT, epilog=_AFTER)
    parser.add_argument("-V", "--version", action="version", version=f"Release Version: {version.release()}")
    below = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for name in [only] if only else names():
        command = load(name)
        command_parser = below.add_parser(
            name, help=command.HELP.partition("\n")[0], description=command.HELP
        )
        command.add_arguments(command_parser)
        arguments.add_metrics(command_parser)
        command_parser.set_defaults(run=command.run)
    return parser


def run(argv: list[str]) -> int:
    """The program; returns the exit code or raises the error that has one."""
    args = parser(argv[0] if argv and argv[0] in names() else "").parse_args(argv)
    log.setup("warn", stream=sys.stderr)  # what a command found is all there is on standard output
    clock.use_utc()
    try:
        with job_metrics.published(args.metrics, args.command) as args.job_metrics:
            args.job_metrics.exit_code = args.run(args)
    except Exception as error:
        translated = driver.translated(error)
        if translated is None or translated is error:
            raise
        raise translated from error
    code: int = args.job_metrics.exit_code
    return code


def main() -> None:
    """Console script."""
    try:
        code = run(sys.argv[1:])
    except BinlogError as error:
        daemon.print_error(PROGRAM, error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = daemon.EXIT_FORCED
    except BrokenPipeError:  # `binlog-spark read ... | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
