"""Command line: from arguments to the command they mean, or to the help.

In     arguments, the environment; flags may stand anywhere, with one or two dashes
Out    a `Call`; `Help` where help or the version was asked for
Never  takes a flag that the command does not have, but for the Go form (`-cmd`), which takes them all
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from binlogctl.cli import commands, parsers
from binlogctl.cli.commands import Command
from binlogctl.cli.parsers import FLAGS, PROGRAM, Parser
from binlogctl.cli.settings import ENV_PREFIX, ENVIRONMENT, CtlSettings
from tidb_binlog import version
from tidb_binlog.config.declaring import convert_text, options, variable
from tidb_binlog.errors import FlagError
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.similar import similar

_HELP: Final = ("h", "help")
_VERSION: Final = ("V", "version")


@dataclass(frozen=True, slots=True)
class Call:
    """A command, its arguments and its flags. `output` is one of the command's forms."""

    command: Command
    words: tuple[str, ...]
    settings: CtlSettings
    output: str
    is_go: bool


@dataclass(frozen=True, slots=True)
class Help:
    """Print this and end."""

    text: str


def check_path(name: str, text: str) -> None:
    """That it is no URI. Raises `FlagError`."""
    try:
        convert_text("path", text)
    except ValueError as error:
        raise FlagError(f"{name} is {text}: {error}", hint="name a file or directory of this host") from None


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Call | Help:
    """Raises `FlagError`."""
    words, flags = _split(argv)
    names = {flag.lstrip("-").partition("=")[0] for flag in flags}
    if words[:1] == ["help"] or names & set(_HELP):
        return Help(_help([word for word in words if word != "help"]))
    if names & set(_VERSION):
        return Help(version.text())
    _check_known(names)
    if not words:
        return _go_call(flags, environ)
    if "cmd" in names:
        raise FlagError(f"{words[0]} and -cmd are two commands", hint="leave one of them away")
    command = _find(words)
    arguments = words[len(command.words.split()) :]
    given = _read(parsers.of_command(command), [*flags, "--", *arguments], command)
    words = [given.pop(argument.name) for argument in command.arguments]
    for argument, word in zip(command.arguments, words, strict=True):
        if argument.is_file:
            check_path(f"{command.words} {argument.name}", word)
    settings = _settings(given, environ)
    return Call(command, tuple(words), settings, _output(command, settings), is_go=False)


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words, and flags in one form: `--flag=value`, so that they may stand before the command and a value may
    begin with a dash, and `--flag` for those that are on or off."""
    words: list[str] = []
    flags: list[str] = []
    rest = list(argv)
    while rest:
        item = rest.pop(0)
        if item == "--":
            words += rest
            break
        # `position -2h`: a span, no flag
        if not item.startswith("-") or item == "-" or item[1].isdigit():
            words.append(item)
            continue
        name, has_value, text = item.lstrip("-").partition("=")
        is_switch = name in FLAGS and FLAGS[name][1].kind == "bool"
        if name in FLAGS and not is_switch and not has_value and rest:
            flags.append(f"--{name}={rest.pop(0)}")
        elif is_switch and has_value:
            flags += [f"--{name}"] if _switch(name, text) else []
        else:
            flags.append(f"--{name}{has_value}{text}")
    return words, flags


def _check_known(names: Collection[str]) -> None:
    """A flag that no command has is told before its value is taken for a command."""
    for name in sorted(set(names) - set(FLAGS)):
        hint = _similar(name, list(FLAGS), f"see {PROGRAM} -h", prefix="-")
        raise FlagError(f"flag provided but not defined: -{name}", hint=hint)


def _switch(name: str, text: str) -> bool:
    try:
        is_on: bool = convert_text("bool", text)
    except ValueError as error:
        raise FlagError(f"flag -{name}: invalid value {text!r}: {error}", hint=f"see {PROGRAM} -h") from None
    return is_on


def _read(parser: Parser, items: Sequence[str], command: Command) -> dict[str, Any]:
    """What was given, by name. Raises `FlagError`."""
    usage = f"{PROGRAM} {command.usage}"
    try:
        given, unknown = parser.parse_known_args(items)
    except argparse.ArgumentError as error:
        name = (error.argument_name or "").partition("/")[0]
        what = f"flag {name}: " if name.startswith("-") else f"{name}: " if name else ""
        raise FlagError(f"{what}{error.message}", hint=usage) from None
    for item in (item for item in unknown if item != "--"):
        if not item.startswith("--"):
            raise FlagError(f"{item!r} is one word too many", hint=usage)
        name = item.lstrip("-").partition("=")[0]
        raise FlagError(f"{command.words} takes no -{name}", hint=f"see {PROGRAM} {command.words} -h")
    return vars(given)


def _settings(given: Mapping[str, Any], environ: Mapping[str, str]) -> CtlSettings:
    values = {}
    for name, entry in options(CtlSettings).items():
        text = environ.get(variable(ENV_PREFIX, str(entry.flag)), "") if entry.flag in ENVIRONMENT else ""
        if text:
            values[name] = convert_text(entry.kind, text)
    return CtlSettings(**{**values, **given})


def _find(words: Sequence[str]) -> Command:
    groups = commands.groups()
    if words[0] not in groups:
        hint = _similar(words[0], list(groups), f"see {PROGRAM} -h")
        raise FlagError(f"{words[0]!r} is no command", hint=hint)
    group = groups[words[0]]
    if " " not in group[0].words:
        return group[0]
    second = words[1] if len(words) > 1 else ""
    for command in group:
        if command.words.split()[1] == second:
            return command
    usages = "|".join(command.usage.partition(" ")[2] for command in group)
    raise FlagError(
        f"{words[0]}: {second or 'nothing'} is no command of it", hint=f"{PROGRAM} {words[0]} {usages}"
    )


def _similar(word: str, choices: Sequence[str], otherwise: str, *, prefix: str = "") -> str:
    near = similar(word, choices)
    return f"did you mean {prefix}{near}?" if near else otherwise


def _go_call(flags: Sequence[str], environ: Mapping[str, str]) -> Call:
    given = _read(parsers.of_go_form(), flags, commands.GO_FORM)
    settings = _settings(given, environ)
    command = commands.by_cmd(settings.cmd)
    if command is None:
        raise FlagError(f"cmd {settings.cmd} not supported", hint="use " + ", ".join(commands.cmds()))
    words = (str(settings.job_id),) if command.arguments and settings.job_id else ()
    return Call(command, words, settings, _output(command, settings, is_go=True), is_go=True)


def _output(command: Command, settings: CtlSettings, *, is_go: bool = False) -> str:
    if not command.outputs:
        return ""
    default = commands.LOG if is_go and commands.LOG in command.outputs else command.outputs[0]
    output = settings.output or default
    if output not in command.outputs:
        raise FlagError(f"output {output!r} is unknown", hint="use " + ", ".join(command.outputs))
    return output


def _help(words: Sequence[str]) -> str:
    """Of a command, of a group, or of the program."""
    tree = parsers.tree()
    if len(words) == 1 and words[0] in tree:
        return tree[words[0]].format_help()
    return tree[_find(words).words if words else ""].format_help()
