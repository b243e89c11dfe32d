"""Hints: whatever an error, a page or a help text says to type is taken by the parser of that program."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

from binlogctl.cli import command_line, commands
from binlogctl.cli.parsers import FLAGS
from drainer.config.options import DrainerConfig
from drainer.reparo.options import ReparoConfig
from drainer.spark.program import parser as spark_parser
from pump.config import PumpConfig
from tests.architecture.source import ROOT, modules
from tidb_binlog.config.declaring import options
from tidb_binlog.errors import FlagError

FLAG = re.compile(r"(?<![\w.`'\"/-])--?([a-z][a-z-]*[a-z])(?![\w/.])")
OPTIONAL = re.compile(r"(?<=[a-z])7\b")
"""What may follow a word, or nothing."""
COMMAND = re.compile(r"`((?:binlogctl|binlog-spark) [^`]+)`")
NAMED = re.compile("binlogctl |binlog-spark ")
OTHERS = {"field", "hex"}
"""Of programs that are not the project's."""


(_BELOW,) = (one for one in spark_parser()._actions if isinstance(one, argparse._SubParsersAction))
SPARK_COMMANDS = {
    name: {flag for action in one._actions for flag in action.option_strings}
    for name, one in _BELOW.choices.items()
}
SPARK = {flag.lstrip("-") for flags in SPARK_COMMANDS.values() for flag in flags}
CTL = set(FLAGS) | {"cmd", "output"}


def flags_of(config: type[Any]) -> set[str]:
    return {str(entry.flag) for entry in options(config).values()} | {"config"}


RESTORE = next(set(one.flags) for one in commands.TABLE_OF_COMMANDS if one.words == "restore") | {"output"}


def text_of(node: ast.expr) -> str:
    """A text with 7 for each value in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(one) if isinstance(one, ast.Constant) else "7" for one in node.values)
    return ""


def texts_in(node: ast.AST) -> Iterator[str]:
    """All of it: the two of an `if`, those that are added, those that a function gives back."""
    if isinstance(node, ast.expr) and (text := text_of(node)):
        yield text
        return
    for child in ast.iter_child_nodes(node):
        yield from texts_in(child)


def is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@cache
def sources() -> list[tuple[str, list[ast.AST], str]]:
    """Of each module its path, all its nodes and its text."""
    return [(one.path.relative_to(ROOT).as_posix(), one.nodes, one.text) for one in modules()]


def named_in(place: str, value: ast.expr) -> Iterator[tuple[str, str]]:
    """What a hint is made of: constants, wherever they are from (""), and functions of the same module."""
    for node in ast.walk(value):
        name = getattr(node, "id", "") or getattr(node, "attr", "")
        if name.isupper():
            yield "", name
        elif name:
            yield place, name


def hints() -> Iterator[tuple[str, str]]:
    """Where each is said, and its text; also of constants and functions that are named as a hint."""
    given = [
        (place, keyword.value)
        for place, nodes, _ in sources()
        for node in nodes
        for keyword in (node.keywords if isinstance(node, ast.Call) else ())
        if keyword.arg == "hint"
    ]
    for place, value in given:
        yield from ((f"{place}:{value.lineno}", text) for text in texts_in(value))
    named = {one for place, value in given for one in named_in(place, value)}
    for place, nodes, _ in sources():
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and (place, node.name) in named:
                body = [one for one in node.body if not is_docstring(one)]
                yield from ((f"{place}:{one.lineno}", text) for one in body for text in texts_in(one))
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            if any(isinstance(one, ast.Name) and ("", one.id) in named for one in targets):
                assert isinstance(node, ast.Assign | ast.AnnAssign)
                found = texts_in(node.value) if node.value is not None else ()
                yield from ((f"{place}:{node.lineno}", text) for text in found)


@cache
def said() -> list[tuple[str, str]]:
    """Every text but docstrings that names such a command."""
    return [(place, text) for place, text in texts() if NAMED.search(text)]


def texts() -> Iterator[tuple[str, str]]:
    """Every text but docstrings of the modules that name such a command."""
    for place, nodes, source in sources():
        if not NAMED.search(source):
            continue
        inside = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        inside |= {node.value for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.expr) and node not in inside and (text := text_of(node)):
                yield f"{place}:{node.lineno}", text


FLAGS_BELOW = {
    "drainer/points/restore/": RESTORE,
    "drainer/spark/": SPARK,
    "drainer/reparo/": CTL | flags_of(ReparoConfig),
    "drainer/": CTL | flags_of(DrainerConfig) | OTHERS,
    "pump/": CTL | flags_of(PumpConfig),
    "deploy/binlog_playground/": CTL,
    "": CTL | flags_of(DrainerConfig) | flags_of(PumpConfig),
}
"""Of the programs in which errors of these modules are said; the first that fits."""


def known(place: str) -> set[str]:
    return next(flags for below, flags in FLAGS_BELOW.items() if place.startswith(below))


def test_flags_of_hints_exist() -> None:
    said_as_hints = set(hints())
    assert len(said_as_hints) > 400
    found = [(place, flag) for place, text in said_as_hints for flag in FLAG.findall(text)]
    assert len(found) > 30
    wrong = [(place, flag) for place, flag in found if flag not in known(place)]
    assert not wrong


def test_commands_between_backquotes_are_taken() -> None:
    lines = {(place, line) for place, text in said() for line in COMMAND.findall(text)}
    assert len(lines) > 60
    for place, line in sorted(lines):
        is_taken(place, line)


def is_taken(place: str, line: str) -> None:
    program, *words = shlex.split(OPTIONAL.sub("", line))
    words = ["show" if place == 1 and word == "7" else word for place, word in enumerate(words)]
    if program == "binlogctl":
        refused = ""
        try:
            command_line.parse(words, {})
        except FlagError as error:
            refused = error.message
        left_open = (
            "required" in refused or "invalid choice: '7'" in refused
        )  # arguments are the reader's affair
        assert not refused or left_open, f"{place}: {line}: {refused}"
        return
    assert words[0] in SPARK_COMMANDS, place
    assert {word for word in words[1:] if word.startswith("-")} <= SPARK_COMMANDS[words[0]], place


def test_commands_in_texts_exist_and_have_the_flags_that_follow() -> None:
    """Wherever a program is named with a command: in what it prints to be copied, in help, in a sentence."""
    found = [
        (place, program, OPTIONAL.sub("", clause).split())
        for place, text in said()
        for program, clause in re.findall(r"\b(binlogctl|binlog-spark) ([^`\n;,:#()]+)", text)
    ]
    assert len(found) > 150
    for place, program, words in found:
        flags = {word.partition("=")[0].lstrip("-") for word in words if re.match(r"--?[a-z]", word)}
        if words[0] in PROSE:
            continue
        if program == "binlog-spark":
            if words[0] == "COMMAND":
                continue
            assert words[0] in SPARK_COMMANDS, (place, words)
            assert {f"--{name}" for name in flags} <= SPARK_COMMANDS[words[0]], (place, words)
        elif words[0] == "-cmd":
            assert words[1].rstrip(".") in (*GO_COMMANDS, "NAME", "update-7"), (place, words)
            assert flags <= CTL, (place, words)
        else:
            of = [one for one in commands.TABLE_OF_COMMANDS if one.words and fits(one.words, words)]
            assert of, (place, words)
            assert flags <= {"output", "help"}.union(*(one.flags for one in of)), (place, words)


PROSE = {"as", "made", "on", "does", "7"}
"""Words that follow a program's name in sentences; 7 is a value."""
GO_COMMANDS = {one.cmd for one in commands.TABLE_OF_COMMANDS if one.cmd}


def fits(command: str, words: list[str]) -> bool:
    """Whether words may call it. A value may stand for its second word."""
    first, *second = command.split()
    rest = words[1].rstrip(".") if len(words) > 1 else ""
    return words[0].rstrip(".") == first and (not second or rest in (second[0], "7", "", "decides"))
