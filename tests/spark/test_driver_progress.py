"""What a waiting user reads of Spark's jobs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from drainer.reading.archive.decode import ddl_history
from drainer.spark import driver
from drainer.spark import program as program
from drainer.spark.audit import auditing
from drainer.spark.commands import index
from drainer.spark.driver import shown
from drainer.spark.flashback import run as flashback
from tests.waiting import PATIENCE_S
from tidb_binlog.observe import show

TO_FLASHBACK = ("--start", "2026-11-22", "--tables", "a.b")


def test_a_line() -> None:
    assert shown("counting", 0, 0, 3.0, 0.0) == "counting, 3.0 s"
    assert shown("replay", 0, 8, 12.0, 12.0, "step 2 of 5") == "replay, step 2 of 5, 0 of 8 tasks, 12 s"
    assert shown("audit", 8, 8, 12.0, 12.0) == "audit, 8 of 8 tasks, 12 s"


def test_the_time_left_is_that_of_the_stages_that_run() -> None:
    assert shown("audit", 2, 8, 100.0, 10.0).endswith("2 of 8 tasks, 100 s, about 30 s left")
    assert "left" not in shown("audit", 1, 100, 100.0, 10.0), "one task of a hundred says nothing"


@pytest.mark.parametrize(
    ("arguments", "module", "name"),
    [
        (("audit", "--archive", "."), auditing, "audit"),
        (("export", "--from", ".", "--to", "x"), ddl_history, "load"),
        (("index", "--archive", "."), index, "survey"),
        (("flashback", *TO_FLASHBACK, "--archive", ".", "--file", "undo.sql"), flashback, "write_script"),
        (
            ("flashback", *TO_FLASHBACK, "--archive", ".", "--to", "mysql://u@h:1/", "--yes"),
            flashback,
            "apply",
        ),
    ],
)
def test_what_takes_long_in_this_process_says_that_it_goes_on(
    arguments: tuple[str, ...], module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark or not: the work ends here only after a line was written."""
    told, lines = threading.Event(), []

    def tell(line: str) -> None:
        lines.append(line)
        told.set()

    def work(*_: Any, **__: Any) -> Any:
        assert told.wait(PATIENCE_S), "nothing was said"
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "PACE_S", 0.001)
    monkeypatch.setattr(driver, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(show, "print_warning", tell)
    monkeypatch.setattr(module, name, work)
    with pytest.raises(KeyboardInterrupt):
        program.run([*arguments])
    assert lines[0].startswith(f"{arguments[0]}, 0.")
