"""binlogctl completion: scripts for bash, zsh and fish, made from the table of commands.

Holds  every command, every flag of each and every choice is offered; files where a command or flag takes one
Tests  tests/deploy/ctl/cli/test_command_line.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from common.config import declaring
from deploy.ctl.cli import commands
from deploy.ctl.cli.command_line import PROGRAM, Call
from deploy.ctl.cli.commands import DONE, Command
from deploy.ctl.cli.settings import CtlSettings

_KINDS: Final = {entry.flag: entry.kind for entry in declaring.options(CtlSettings).values() if entry.flag}
_HELP: Final = {entry.flag: entry.help for entry in declaring.options(CtlSettings).values() if entry.flag}
_FILE_FLAGS: Final = (
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "data-dir",
    "pump-config",
    "drainer-config",
    "archive",
    "report",
    "repair",
)


def choices(flag: str, command: Command | None) -> tuple[str, ...]:
    """What a flag's value may be; none: anything."""
    if flag == "cmd":
        return tuple(commands.cmds())
    if flag == "output":
        return commands.READABLE if command is None else command.outputs
    if flag == "upstream":
        return ("auto", "tidb", "standalone")
    if flag == "kind":
        return ("pump", "drainer")
    if flag == "state":
        from common.cluster.node import STATES

        return STATES
    return ()


async def run(call: Call) -> int:
    """Print the script of one shell."""
    sys.stdout.write({"bash": bash, "zsh": zsh, "fish": fish}[call.words[0]]())
    return DONE


def _go_flags() -> tuple[str, ...]:
    return tuple(_KINDS)


def _first_words() -> list[str]:
    return list(dict.fromkeys(command.words.split()[0] for command in commands.worded()))


def _groups() -> dict[str, list[str]]:
    """Second words by first word, of commands of two words."""
    found: dict[str, list[str]] = {}
    for command in commands.worded():
        first, _, second = command.words.partition(" ")
        if second:
            found.setdefault(first, []).append(second)
    return found


def _dashed(flags: Iterable[str]) -> str:
    return " ".join(f"-{flag}" for flag in flags)


def bash() -> str:
    """For bash; zsh can run it too."""
    valued = "|".join(f"-{flag}|--{flag}" for flag, kind in _KINDS.items() if kind != "bool")
    lines = [
        "_binlogctl() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words="" i',
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    case "${COMP_WORDS[i]}" in',
        f"      {valued}) ((i++)) ;;",
        "      -*) ;;",
        '      *) words="${words:+$words }${COMP_WORDS[i]}" ;;',
        "    esac",
        "  done",
        '  local offered="" files=""',
        '  case "$before" in',
    ]
    valued_by = {flag: found for flag in _KINDS if (found := choices(flag, None))}
    lines += [
        f'    -{flag}|--{flag}) COMPREPLY=($(compgen -W "{" ".join(found)}" -- "$word")); return ;;'
        for flag, found in valued_by.items()
    ]
    named = "|".join(f"-{flag}|--{flag}" for flag in _FILE_FLAGS)
    lines += [f'    {named}) COMPREPLY=($(compgen -f -- "$word")); return ;;', "  esac", '  case "$words" in']
    lines.append(f'    "") offered="{" ".join(_first_words())} help {_dashed(_go_flags())}" ;;')
    lines += [f'    "{first}") offered="{" ".join(found)}" ;;' for first, found in _groups().items()]
    for command in commands.worded():
        argument = command.arguments[0] if command.arguments else None
        more = "".join(f" {choice}" for choice in argument.choices) if argument else ""
        files = "; files=1" if argument and argument.is_file else ""
        offered = f"{_dashed(command.all_flags)}{more}"
        lines.append(f'    "{command.words}"|"{command.words} "*) offered="{offered}"{files} ;;')
    lines += [
        "  esac",
        '  COMPREPLY=($(compgen -W "$offered" -- "$word"))',
        '  [[ -n "$files" && "$word" != -* ]] && COMPREPLY+=($(compgen -f -- "$word"))',
        "  return 0",
        "}",
        f"complete -o filenames -F _binlogctl {PROGRAM}",
    ]
    return "\n".join(lines) + "\n"


def zsh() -> str:
    """For zsh, through its reading of bash's completions."""
    return (
        "autoload -Uz compinit bashcompinit\n(( $+functions[compdef] )) || compinit\nbashcompinit\n" + bash()
    )


def fish() -> str:
    """For fish."""
    valued = [flag for flag, kind in _KINDS.items() if kind != "bool"]
    lines = [
        "function __binlogctl_words",
        "  set -l skip",
        "  for word in (commandline -opc)[2..-1]",
        '    if test -n "$skip"',
        "      set skip",
        "      continue",
        "    end",
        "    switch $word",
        "      case " + " ".join(f"-{flag} --{flag}" for flag in valued),
        "        set skip 1",
        "      case '-*'",
        "      case '*'",
        "        echo $word",
        "    end",
        "  end",
        "end",
        "function __binlogctl_is",
        "  set -l words (__binlogctl_words)",
        '  test "$words" = "$argv"',
        "end",
        "function __binlogctl_in",
        "  set -l words (__binlogctl_words)",
        '  string match -q -- "$argv" "$words"; or string match -q -- "$argv *" "$words"',
        "end",
        f"complete -c {PROGRAM} -f",
    ]
    groups = _groups()
    for first in _first_words():
        summary = next(one.summary for one in commands.worded() if one.words.split()[0] == first)
        help_text = ", ".join(groups[first]) if first in groups else summary
        lines.append(_fish("__binlogctl_is", f"-a {first}", help_text))
    lines += [
        _fish(f"__binlogctl_is {first}", f"-a {command.words.partition(' ')[2]}", command.summary)
        for first in groups
        for command in commands.group(first)
    ]
    lines += [
        _fish("__binlogctl_is", _fish_flag(flag, choices(flag, None)), _HELP[flag]) for flag in _go_flags()
    ]
    for command in commands.worded():
        here = f"__binlogctl_in {command.words}"
        lines += [
            _fish(here, _fish_flag(flag, choices(flag, command)), _HELP[flag]) for flag in command.all_flags
        ]
        for argument in command.arguments:
            if argument.choices:
                lines.append(_fish(here, f"-a {_quoted(' '.join(argument.choices))}", argument.name))
            if argument.is_file:
                lines.append(_fish(here, "-F", argument.name))
    return "\n".join(lines) + "\n"


def _fish_flag(flag: str, found: tuple[str, ...]) -> str:
    if _KINDS[flag] == "bool":
        return f"-o {flag}"
    if flag in _FILE_FLAGS:
        return f"-o {flag} -r -F"
    return f"-o {flag} -x" + (f" -a {_quoted(' '.join(found))}" if found else "")


def _fish(condition: str, offered: str, help_text: str) -> str:
    return f"complete -c {PROGRAM} -n {_quoted(condition)} {offered} -d {_quoted(help_text)}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
