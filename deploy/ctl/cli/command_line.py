"""Command line: from arguments to the command they mean, and the help.

In     arguments, the environment; flags may stand anywhere, with one or two dashes
Out    a `Call`; `Help` where help was asked for
Never  takes a flag that the command does not have, but for the Go form (`-cmd`), which takes them all
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from common.config import loading
from common.config.declaring import defaults, options
from common.errors import FlagError
from deploy.ctl.cli import commands
from deploy.ctl.cli.commands import Command
from deploy.ctl.cli.settings import ENV_PREFIX, ENVIRONMENT, CtlSettings

PROGRAM: Final = "binlogctl"
_HELP: Final = ("h", "help")
_OPTIONS: Final = {entry.flag: entry for entry in options(CtlSettings).values() if entry.flag}
_DEFAULTS: Final = {entry.flag: defaults(CtlSettings)[name] for name, entry in options(CtlSettings).items()}


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


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Call | Help:
    """Raises `FlagError`; `SystemExit(0)` after `-V`."""
    words, flags, wants_help = _split(argv)
    if words[:1] == ["help"]:
        words, wants_help = words[1:], True
    if wants_help:
        return Help(_help(words))
    given = {flag.lstrip("-").partition("=")[0] for flag in flags if flag.startswith("-")}
    variables = {_variable(name): environ.get(_variable(name), "") for name in ENVIRONMENT}
    settings = loading.load(CtlSettings, flags, variables, program=PROGRAM, env_prefix=ENV_PREFIX)
    if words and "cmd" in given:
        raise FlagError(f"{words[0]} and -cmd are two commands", hint="leave one of them away")
    command = _find(words) if words else None
    if command is None:
        return _go_call(settings)
    arguments = words[len(command.words.split()) :]
    _check_arguments(command, arguments)
    for flag in flags:
        name = flag.lstrip("-").partition("=")[0]
        if flag.startswith("-") and name in _OPTIONS and name not in command.all_flags:
            raise FlagError(
                f"{command.words} takes no -{name}",
                hint=f"see {PROGRAM} {command.words} -h",
            )
    return Call(command, tuple(arguments), settings, _output(command, settings), is_go=False)


def _variable(flag: str) -> str:
    return f"{ENV_PREFIX}_{flag.upper().replace('-', '_')}"


def _split(argv: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """Words, flags (each with its value in one item) and whether help is wanted."""
    words: list[str] = []
    flags: list[str] = []
    wants_help = False
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
        name, has_value, _ = item.lstrip("-").partition("=")
        if name in _HELP:
            wants_help = True
        elif name == "config":  # built into the daemons' command lines
            raise FlagError("flag provided but not defined: -config", hint=f"see {PROGRAM} -h")
        elif name in _OPTIONS and _OPTIONS[name].kind != "bool" and not has_value and rest:
            flags.append(f"-{name}={rest.pop(0)}")
        else:
            flags.append(item)
    return words, flags, wants_help


def _find(words: Sequence[str]) -> Command:
    found = commands.group(words[0])
    if not found:
        known = sorted({command.words.split()[0] for command in commands.worded()})
        raise FlagError(f"{words[0]!r} is no command", hint=_similar(words[0], known, f"see {PROGRAM} -h"))
    if " " not in found[0].words:
        return found[0]
    second = words[1] if len(words) > 1 else ""
    for command in found:
        if command.words.split()[1] == second:
            return command
    usages = "|".join(command.usage.partition(" ")[2] for command in found)
    raise FlagError(
        f"{words[0]}: {second or 'nothing'} is no command of it", hint=f"{PROGRAM} {words[0]} {usages}"
    )


def _similar(word: str, known: Sequence[str], otherwise: str) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else otherwise


def _check_arguments(command: Command, arguments: Sequence[str]) -> None:
    usage = f"{PROGRAM} {command.usage}"
    if len(arguments) < len(command.arguments):
        raise FlagError(f"{command.words} needs {command.arguments[len(arguments)].name}", hint=usage)
    if len(arguments) > len(command.arguments):
        raise FlagError(f"{arguments[len(command.arguments)]!r} is one word too many", hint=usage)
    for argument, given in zip(command.arguments, arguments, strict=True):
        if argument.choices and given not in argument.choices:
            raise FlagError(
                f"{command.words}: {argument.name} is {given!r}", hint="use " + ", ".join(argument.choices)
            )


def _go_call(settings: CtlSettings) -> Call:
    command = commands.by_cmd(settings.cmd)
    if command is None:
        raise FlagError(f"cmd {settings.cmd} not supported", hint="use " + ", ".join(commands.cmds()))
    words = (str(settings.job_id),) if command.arguments and settings.job_id else ()
    return Call(command, words, settings, _output(command, settings), is_go=True)


def _output(command: Command, settings: CtlSettings) -> str:
    if not command.outputs:
        return ""
    output = settings.output or command.outputs[0]
    if output not in command.outputs:
        raise FlagError(f"output {output!r} is unknown", hint="use " + ", ".join(command.outputs))
    return output


# Help ------------------------------------------------------------------------------------------------------


def _help(words: Sequence[str]) -> str:
    if not words:
        return overview()
    found = commands.group(words[0])
    if not found or " " not in found[0].words:
        return of_command(_find(words))
    if len(words) == 1:
        return _of_group(words[0], found)
    return of_command(_find(words))


def overview() -> str:
    """The text of `binlogctl -h`."""
    worded = [(command.usage, command.summary) for command in commands.worded()]
    go = [(command.usage, command.summary) for command in commands.TABLE_OF_COMMANDS if not command.words]
    lines = [
        f"Usage: {PROGRAM} COMMAND [flags]",
        "",
        "Shows and directs the pumps and drainers of a cluster.",
        "",
        "Commands:",
        *_columns(worded),
        "",
        f"As the Go binlogctl has them, with its flags and lines ({PROGRAM} alone is -cmd pumps):",
        *_columns(go),
        "",
        "Flags of the connection; the environment may have them too, as BINLOGCTL_PD_URLS:",
        *_flag_lines(commands.CONNECTION),
        "",
        f"{PROGRAM} COMMAND -h tells more of a command and has its flags; -V prints the version.",
        "",
    ]
    return "\n".join(lines) + "\n" + commands.EXIT_CODES


def _of_group(word: str, found: Sequence[Command]) -> str:
    pairs = [(command.usage, command.summary) for command in found]
    return "\n".join([f"Usage: {PROGRAM} {word} ...", "", *_columns(pairs), ""]) + "\n" + commands.EXIT_CODES


def of_command(command: Command) -> str:
    """The text of `binlogctl COMMAND -h`."""
    lines = [
        f"Usage: {PROGRAM} {command.usage} [flags]",
        "",
        f"{command.summary[0].upper()}{command.summary[1:]}.",
    ]
    if command.text:
        lines += ["", *command.text.splitlines()]
    if command.cmd:
        lines += ["", f"Also: {PROGRAM} -cmd {command.cmd}"]
    if command.all_flags:
        lines += ["", "Flags:", *_flag_lines(command.flags)]
    if command.outputs:
        forms = ", ".join(command.outputs)
        lines += ["  -output FORM", f"        {forms} (default {command.outputs[0]})"]
    return "\n".join(lines) + "\n\n" + commands.EXIT_CODES


def _columns(pairs: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(left) for left, _ in pairs)
    return [f"  {left.ljust(width)}  {right}" for left, right in pairs]


_SHOWN_KIND: Final = {"str": " TEXT", "int": " NUMBER", "duration": " DURATION", "bool": ""}


def _flag_lines(flags: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for flag in flags:
        entry, default = _OPTIONS[flag], _DEFAULTS[flag]
        shown = "" if default in ("", False, 0) else f" (default {_shown(default, entry.kind)})"
        lines += [f"  -{flag}{_SHOWN_KIND[entry.kind]}", f"        {entry.help}{shown}"]
    return lines


def _shown(default: object, kind: str) -> str:
    return f"{default:g}s" if kind == "duration" and isinstance(default, int | float) else str(default)
