"""Hints: whatever an error says to type is taken by the parser of that program."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.config.declaring import options
from common.errors import FlagError
from deploy.ctl.cli import command_line, commands
from deploy.ctl.cli.parsers import FLAGS
from drainer.config.options import DrainerConfig
from drainer.reparo.options import ReparoConfig
from drainer.spark.__main__ import parser as spark_parser
from pump.config import PumpConfig

ROOT = Path(__file__).parents[2]
FLAG = re.compile(r"(?<![\w.`'\"/-])--?([a-z][a-z-]*[a-z])(?![\w/.])")
COMMAND = re.compile(r"`((?:binlogctl|binlog-spark) [^`]+)`")
OTHERS = {"field", "hex"}
"""Of programs that are not the project's."""


def spark_flags() -> set[str]:
    (below,) = (one for one in spark_parser()._actions if isinstance(one, argparse._SubParsersAction))
    actions = (action for one in below.choices.values() for action in one._actions)
    return {flag.lstrip("-") for action in actions for flag in action.option_strings}


SPARK = spark_flags()
CTL = set(FLAGS) | {"cmd", "output"}
CONFIGS = (DrainerConfig, ReparoConfig, PumpConfig)
OPTIONS = {str(entry.flag) for cls in CONFIGS for entry in options(cls).values()} | {"config"}
RESTORE = next(set(one.flags) for one in commands.TABLE_OF_COMMANDS if one.words == "restore") | {"output"}


def text_of(node: ast.expr) -> str:
    """A hint with 7 for each value in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(one) if isinstance(one, ast.Constant) else "7" for one in node.values)
    return ""


def hints() -> Iterator[tuple[str, str]]:
    for top in ("common", "deploy", "drainer", "pump", "pumpclient"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                for keyword in node.keywords if isinstance(node, ast.Call) else ():
                    if keyword.arg == "hint" and (text := text_of(keyword.value)):
                        yield f"{path.relative_to(ROOT)}:{keyword.value.lineno}", text


HINTS = list(hints())


def known(place: str) -> set[str]:
    """Flags of the programs in which the module's errors are said."""
    if place.startswith("drainer/restore/"):
        return RESTORE
    if place.startswith("deploy/ctl/"):
        return CTL | OPTIONS
    return CTL | OPTIONS | SPARK | OTHERS


def test_flags_of_hints_exist() -> None:
    assert len(HINTS) > 400
    found = [(place, flag) for place, text in HINTS for flag in FLAG.findall(text)]
    assert len(found) > 30
    wrong = [(place, flag) for place, flag in found if flag not in known(place)]
    assert not wrong


LINES = [(place, line) for place, text in HINTS for line in COMMAND.findall(text)]


@pytest.mark.parametrize(("place", "line"), LINES)
def test_commands_of_hints_are_taken(place: str, line: str) -> None:
    program, *words = shlex.split(line)
    words = ["show" if place == 1 and word == "7" else word for place, word in enumerate(words)]
    if program == "binlogctl":
        said = ""
        try:
            command_line.parse(words, {})
        except FlagError as error:
            said = error.message
        assert not said or "required" in said, f"{place}: {line}: {said}"  # arguments are left to the reader
        return
    (below,) = (one for one in spark_parser()._actions if isinstance(one, argparse._SubParsersAction))
    assert words[0] in below.choices, place
    flags = {flag for action in below.choices[words[0]]._actions for flag in action.option_strings}
    assert {word for word in words[1:] if word.startswith("-")} <= flags, place
