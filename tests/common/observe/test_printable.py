"""Text from outside never steers a terminal: every code point, and every way of a command to its output."""

from __future__ import annotations

import ast
import io
import json
import sys
import unicodedata

import pytest

from tests.architecture.source import modules
from tidb_binlog.observe import show
from tidb_binlog.observe.printable import in_json, is_printable, one_line, printable

HOSTILE = "a\x1b]0;owned\x07b\x9b2Jc\u202ed\ud800e\x7ff\rg"


def steers(character: str) -> bool:
    """Control, format characters that change the direction, line ends of Unicode's own, surrogates."""
    directions = ("LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(character) in directions
        or character in "\u200e\u200f\u061c"
    )


def test_nothing_that_steers_passes_and_everything_else_does() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        shown = printable(character)
        if character in "\t\n" or not steers(character):
            assert shown == character
        else:
            assert shown.isascii()
            assert shown.startswith("\\")
            assert not is_printable(character)
            assert (
                json.loads(
                    in_json(
                        f'"{character}"',
                    )
                    if code >= 0x20
                    else in_json('""')
                )
                is not None
            )


def test_one_line_is_one_line() -> None:
    assert one_line("a\nb\t c\x1b[2J") == "a b c\\x1b[2J"


def test_json_keeps_its_meaning() -> None:
    document = {HOSTILE: [HOSTILE]}
    text = show.json_text(document)
    assert json.loads(text) == document
    assert all(is_printable(line) for line in text.splitlines())
    text.encode()  # surrogates would not


def test_tables_facts_lines_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    show.print_table(HOSTILE, (HOSTILE,), [(HOSTILE,)])
    show.print_facts([(HOSTILE, HOSTILE)])
    show.print_lines(HOSTILE)
    show.print_warning(HOSTILE)
    show.console().print(show.text(HOSTILE, style="red"))
    written = capsys.readouterr()
    for line in (written.out + written.err).split("\n"):
        assert is_printable(line), line
    assert "\\x1b]0;owned" in written.out


def test_the_console_of_a_file() -> None:
    file = io.StringIO()
    show.console(file).print(show.table("t", ("a",), [(HOSTILE,)]))
    assert is_printable(file.getvalue().replace("\n", ""))


BY_ITSELF = {f"sys.{stream}.{how}" for stream in ("stdout", "stderr") for how in ("write", "writelines")}
# What writes by itself: the text is the program's own, or cleaned there.
OWN_WRITERS = {
    "tidb_binlog.observe.show",
    "tidb_binlog.config.loading",  # -h and -V
    "tidb_binlog.process.daemon",  # one line of an error, cleaned
    "binlogctl.program",  # -h
    "binlogctl.commands.completion",
    "binlogctl.commands.tail",  # cleaned value by value, between colours of its own; tested with it
    "tidb_binlog.process.programs",  # a line: what show needs may be what is missing
    "binlogctl.doctor.show",  # cleaned; tested with the doctor
    "drainer.program",  # the summary of a recovery: numbers
}


def test_commands_write_through_show_alone() -> None:
    for module in modules():
        if module.name in OWN_WRITERS or module.name.startswith("binlog_playground"):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{module.name} prints by itself"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                by_itself = node.func.attr.startswith("write") and ast.unparse(node.func) in BY_ITSELF
                assert not by_itself, f"{module.name} writes to {ast.unparse(node.func)} by itself"


def test_words_of_a_table_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is no room for a table, a row is several lines."""
    row = ("127.0.0.1:8250", "470802831963848704", "waits for binlogs of all the pumps that there are")
    for columns in (60, 30):
        monkeypatch.setenv("COLUMNS", str(columns))
        show.print_table("nodes", ("address", "position", "doing", "empty"), [(*row, "")] * 2)
        written = capsys.readouterr().out
        assert ("─" in written) == (columns == 60)
        assert all(written.count(word) == 2 for word in (*row[:2], "binlogs", "there"))
        assert all(len(line) <= columns or line == f"doing     {row[2]}" for line in written.splitlines())
    assert "empty" not in written, "what is empty has no line"


def test_a_table_counts_the_columns_of_wide_letters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    row = ("商店." + "订单" * 9, "pump-1.example.com:8250")
    show.print_table("tables", ("table", "address"), [row])
    written = capsys.readouterr().out
    assert all(word in written for word in row)
