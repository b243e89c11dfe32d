"""DDL barrier: what is durable before a statement runs, what its end is stored with, what a start finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drainer.checkpoint.value import Intent
from drainer.ddl.policy import Ruling
from drainer.ddl.rules import APPLY, REWRITE, SKIP
from drainer.ddl.run.takes_long import Beside
from drainer.sink.mysql.ddl_barrier import DdlBarrier
from drainer.txn import Ddl
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import DownstreamError

DDL = Ddl(9, 7, 5, "d", "ALTER TABLE t", (("d", "t"),), 4)
SHAPE = {"d.t": "as it was"}
INTENT = Intent(9, 7, DDL.query, SHAPE)
LATER = frozenset(
    ("judge", "end_ddl", "begin_ddl", "refused", "run_beside", "log_kept", "log_ddl", "half_done")
)

WAY, KNOWN, SHAPED = ("in_the_way", DDL), ("covers", 9), ("before", DDL)
LONG, HAD = ("takes_long", DDL, Beside(5, ("s", "spare_1"))), ("had_run", INTENT, DDL, None)
KEPT, END = ("log_kept", DDL), ("end_ddl", 9)
RUN = [("log_ddl", DDL, None), ("begin_ddl", INTENT), ("run", DDL, None)]
AGAIN = [("log_ddl", DDL, "x"), ("begin_ddl", INTENT), ("run", DDL, "x")]


class Parts:
    """All that a barrier works with: it notes what is asked for, and answers as it was told."""

    schema, cluster_id, beside_rows, may_wait = "s", 1, 5, True

    def __init__(self, **answers: Any) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {
            "judge": Ruling(APPLY, ""),
            "before": SHAPE,
            "lane_table": self,
            **answers,
        }
        self.store = self.safe_mode = self.dependencies = self
        self.schema_version, self.schema_ts = 3, 0

    async def call(self, function: Any, *of: Any) -> Any:
        return function(*of)

    def __getattr__(self, name: str) -> Any:
        def answer(*of: Any) -> Any:
            self.said.append((name, *of))
            if isinstance(given := self.answers.get(name), Exception):
                raise given
            return given

        async def later(*of: Any) -> Any:
            return answer(*of)

        return later if name in LATER else answer


async def applied(parts: Any, ddl: Ddl = DDL, pending: Intent | None = None) -> bool:
    """Whether it ran. What was said is `parts.said`, without what each DDL begins with and is followed by."""
    barrier = DdlBarrier(parts, parts, pending, SystemClock(), parts, parts, parts, parts)
    ran = await barrier.apply(ddl)
    parts.said = [said for said in parts.said if said[0] not in ("lane_table", "progress")]
    half_done = [("half_done", 7)] if ddl.half_done else []
    begin, end = [*half_done, ("judge", ddl, 3)], [("keep_schema", 9), END][: 1 + ran]
    assert (parts.said[: len(begin)], parts.said[-len(end) :]) == (begin, end)
    parts.said = parts.said[len(begin) : -len(end)]
    assert (barrier.doing, parts.schema_ts) == ("", 9)
    assert parts.schema_version == max(3, ddl.schema_version)
    return ran


@pytest.mark.parametrize(
    ("answers", "pending", "ran", "said"),
    [
        ({}, None, True, [WAY, KNOWN, LONG, SHAPED, *RUN]),
        ({}, replace(INTENT, commit_ts=8), True, [WAY, KNOWN, LONG, SHAPED, *RUN]),
        ({"had_run": True}, INTENT, True, [HAD]),
        ({}, INTENT, True, [HAD, RUN[-1]]),
        ({"run": DownstreamError("no")}, INTENT, False, [HAD, RUN[-1], ("refused", DDL, 3, SHAPE, "no")]),
        (
            {"run": DownstreamError("no")}, None, False,
            [WAY, KNOWN, LONG, SHAPED, *RUN, ("refused", DDL, 3, SHAPE, "no")],
        ),
        ({"in_the_way": "t2"}, None, False, [WAY, SHAPED, KEPT, ("refused", DDL, 3, SHAPE, "t2")]),
        ({"covers": True, "already_done": True}, None, True, [WAY, KNOWN, ("already_done", DDL)]),
        ({"covers": True}, None, True, [WAY, KNOWN, ("already_done", DDL), LONG, SHAPED, *RUN]),
        (
            {"takes_long": "9 rows"}, None, False,
            [WAY, KNOWN, LONG, KEPT, ("run_beside", DDL, 3, "runs beside the stream: 9 rows")],
        ),
        ({"judge": Ruling(REWRITE, "", "x"), "in_the_way": "t2"}, None, True, [WAY, KNOWN, SHAPED, *AGAIN]),
        ({"judge": Ruling(SKIP, "a rule")}, None, False, []),
    ],
)  # fmt: skip
async def test_what_is_done_in_which_order(
    answers: dict[str, Any], pending: Intent | None, ran: bool, said: list[Any]
) -> None:
    parts = Parts(**answers)
    assert await applied(parts, pending=pending) is ran
    assert parts.said == said


async def test_what_the_downstream_would_lose_rows_by_waits_and_a_job_that_is_half_done_is_asked_about() -> (
    None
):
    parts, ddl = Parts(), replace(DDL, refused="a key", half_done=True, schema_version=2)
    assert not await applied(parts, ddl)
    assert parts.said == [("before", ddl), ("log_kept", ddl), ("refused", ddl, 3, SHAPE, "a key")]


async def test_what_may_not_wait_is_not_asked_how_long_it_takes() -> None:
    parts = Parts()
    parts.may_wait = False  # type: ignore[misc]
    assert await applied(parts)
    assert LONG not in parts.said


async def test_an_intent_is_of_the_first_ddl_of_a_life() -> None:
    parts: Any = Parts(had_run=True)
    barrier = DdlBarrier(parts, parts, INTENT, SystemClock(), parts, parts, parts)
    assert await barrier.apply(replace(DDL, half_done=True))
    assert ("half_done", 7) not in parts.said, "nobody can be asked"
    await barrier.apply(DDL)
    assert [said[0] for said in parts.said].count("had_run") == 1
