"""What a waiting user reads of Spark's jobs."""

from __future__ import annotations

from drainer.spark.driver import shown


def test_a_line() -> None:
    assert shown("counting", 0, 0, 3.0, 0.0) == "counting, 3.0 s"
    assert shown("replay", 0, 8, 12.0, 12.0, "step 2 of 5") == "replay, step 2 of 5, 0 of 8 tasks, 12 s"
    assert shown("audit", 8, 8, 12.0, 12.0) == "audit, 8 of 8 tasks, 12 s"


def test_the_time_left_is_that_of_the_stages_that_run() -> None:
    assert shown("audit", 2, 8, 100.0, 10.0).endswith("2 of 8 tasks, 100 s, about 30 s left")
    assert "left" not in shown("audit", 1, 100, 100.0, 10.0), "one task of a hundred says nothing"
