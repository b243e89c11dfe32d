"""Parsers: the table of commands as `argparse` parsers, which read a command's line, print the help and are
what completion is made from.

Never  ends the process: what is wrong is a `FlagError`

Tests  tests/deploy/binlogctl/cli/test_command_line.py
"""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn

from binlogctl.cli import commands
from binlogctl.cli.commands import Command
from binlogctl.cli.settings import ENV_PREFIX, CtlSettings
from tidb_binlog.config.declaring import Option, OptionKind, convert_text, options
from tidb_binlog.config.reference import default
from tidb_binlog.errors import FlagError

PROGRAM: Final = "binlogctl"
FLAGS: Final = {entry.flag: (name, entry) for name, entry in options(CtlSettings).items() if entry.flag}
_METAVARS: Final = {"str": "TEXT", "path": "TEXT", "int": "NUMBER", "duration": "DURATION"}
_GO: Final = ("cmd", "node-id", "state", "show-offline-nodes", "data-dir", "text", "time-zone", "output")
_FILES: Final = ("ssl-ca", "ssl-cert", "ssl-key", "pump-config", "drainer-config", "report", "repair")
_DIRECTORIES: Final = ("data-dir", "archive", "dir", "image")
_COLUMNS: Final = 100
_ALONE: Final = re.compile(rf"\s|{PROGRAM}|(?:[A-Z]\w*|bash|zsh|fish): |Exit codes:")
_ROW: Final = re.compile(r" +\S+ {2,}")


class _Format(argparse.RawDescriptionHelpFormatter):
    """One form of each flag, the shorter: `argparse` would show both, with the value after each. Texts fit a
    terminal that is narrower than they are written; commands to copy stay whole."""

    def __init__(self, prog: str, **more: Any) -> None:
        width = min(shutil.get_terminal_size((_COLUMNS, 0)).columns, _COLUMNS)
        super().__init__(prog, **{**more, "max_help_position": min(32, width // 3), "width": width})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if width >= _COLUMNS:
            return super()._fill_text(text, width, indent)
        return "\n".join(line for part in _parts(text) for line in _fitted(part, width))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        return " ".join((action.option_strings[0], *([str(action.metavar)] if action.metavar else [])))


def _parts(text: str) -> Iterator[str]:
    """Paragraphs of prose; lines of tables and of commands by themselves."""
    prose: list[str] = []
    for line in text.splitlines():
        if line and not _ALONE.match(line):
            prose.append(line)
            continue
        if prose:
            yield " ".join(prose)
            prose = []
        yield line
    yield " ".join(prose)


def _fitted(part: str, width: int) -> list[str]:
    if part.startswith(PROGRAM):
        return [part]
    row = _ROW.match(part)
    return textwrap.wrap(part, width, subsequent_indent=" " * len(row[0]) if row else "") or [part]


class Parser(argparse.ArgumentParser):
    """Takes flags whole, and says what is wrong by an exception."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Format, **more}, exit_on_error=False)

    def error(self, message: str) -> NoReturn:
        """Raise what the parser did not understand."""
        raise FlagError(message, hint=f"see {self.prog} -h")


def of_command(command: Command, into: Parser | None = None) -> Parser:
    """The parser of one command; `found` is filled instead of a new one."""
    parser = into or Parser(prog=f"{PROGRAM} {command.words}")
    parser.usage = _percent(f"{PROGRAM} {command.usage} [flags]")
    told = [f"{command.summary[0].upper()}{command.summary[1:]}."]
    told += [command.text] if command.text else []
    told += [f"Also: {PROGRAM} -cmd {command.cmd}"] if command.cmd else []
    parser.description = _percent("\n\n".join(told))
    parser.epilog = commands.EXIT_CODES
    for argument in command.arguments:
        shown = ", ".join(argument.choices) or None
        action = parser.add_argument(argument.name, choices=argument.choices or None, help=shown)
        action.metavar = argument.name
        _completed(action, "file" if argument.is_file else "")
    _add_flags(parser, command.flags)
    if command.outputs:
        forms = f"{', '.join(command.outputs)} (default {command.outputs[0]})"
        parser.add_argument("-output", "--output", metavar="FORM", help=forms, default=argparse.SUPPRESS)
    return parser


def of_go_form() -> Parser:
    """The parser of `-cmd`, which takes every flag."""
    parser = Parser(prog=PROGRAM)
    _add_go_form(parser)
    return parser


def _add_go_form(parser: Parser) -> None:
    parser.add_argument(
        "-V", "--version", action="store_true", default=argparse.SUPPRESS, help="print the version"
    )
    connection = parser.add_argument_group(
        "the connection", f"The environment may have these too, as {ENV_PREFIX}_PD_URLS."
    )
    _add_flags(connection, commands.CONNECTION)
    go = parser.add_argument_group("the form of the Go binlogctl")
    _add_flags(go, _GO)
    rest = [flag for flag in FLAGS if flag not in (*commands.CONNECTION, *_GO)]
    _add_flags(parser, rest, is_shown=False)


def tree() -> dict[str, Parser]:
    """Every parser by the words that lead to it; "" is the root, which has the others below it."""
    root = Parser(prog=PROGRAM, usage=f"{PROGRAM} COMMAND [flags]")
    root.description = "Shows and directs the pumps and drainers of a cluster."
    go = [(command.cmd, command.summary) for command in commands.TABLE_OF_COMMANDS if command.cmd]
    width = max(len(name) for name, _ in go)
    root.epilog = _percent(
        f"A flag has one dash or two. {PROGRAM} COMMAND -h tells more of a command and has its flags.\n\n"
        f"-cmd NAME prints lines as the Go binlogctl does ({PROGRAM} alone is -cmd pumps). NAME is one of\n"
        + "".join(f"  {name.ljust(width)}  {summary}\n" for name, summary in go)
        + f"\n{commands.EXIT_CODES}"
    )
    parsers = {"": root}
    below = root.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    _add_go_form(root)
    for first, group in commands.groups().items():
        if " " not in group[0].words:
            parsers[first] = of_command(group[0], below.add_parser(first, help=_percent(group[0].summary)))
            continue
        usages = ", ".join(command.usage.partition(" ")[2] for command in group)
        parsers[first] = below.add_parser(first, help=usages, usage=f"{PROGRAM} {first} ...")
        parsers[first].epilog = commands.EXIT_CODES
        second = parsers[first].add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
        for command in group:
            parser = second.add_parser(command.words.partition(" ")[2], help=_percent(command.summary))
            parsers[command.words] = of_command(command, parser)
    return parsers


def completed(choices: Callable[[str, Command | None], Iterable[str]]) -> Parser:
    """The root of the tree, with what may follow each flag, for the completion of shells."""
    parsers = tree()
    by_words = {command.words: command for command in commands.worded()}
    for words, parser in parsers.items():
        for action in _flags_of(parser):
            flag = action.option_strings[0].lstrip("-")
            action.choices = tuple(choices(flag, by_words.get(words))) or None
            kind = "file" if flag in _FILES else "directory" if flag in _DIRECTORIES else ""
            if flag == "state" and words == "verify":
                kind = "file"
            _completed(action, kind)
    return parsers[""]


def _flags_of(parser: Parser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings and action.nargs != 0]


def _completed(action: argparse.Action, kind: str) -> None:
    """`kind`: file or directory, as shtab's `complete` has them; "" for none."""
    if kind:
        action.complete = kind  # type: ignore[attr-defined]


def _add_flags(parser: argparse._ActionsContainer, flags: Iterable[str], *, is_shown: bool = True) -> None:
    for flag in flags:
        name, entry = FLAGS[flag]
        more: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS}
        more["help"] = _percent(entry.help + _default(entry)) if is_shown else argparse.SUPPRESS
        if entry.kind == "bool":
            more["action"] = "store_true"
        else:
            more |= {"metavar": _METAVARS[entry.kind], "type": _reader(entry.kind)}
        parser.add_argument(f"-{flag}", f"--{flag}", **more)


def _reader(kind: OptionKind) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return convert_text(kind, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"invalid value {text!r}: {error}") from None

    return read


def _default(entry: Option) -> str:
    return "" if entry.written in ("", False, 0) else f" (default {default(entry).strip(chr(34))})"


def _percent(text: str) -> str:
    """As `argparse` has to be given it."""
    return re.sub("%", "%%", text)
