"""The routes of the Go drainer, byte for byte as scripts know them."""

from __future__ import annotations

from typing import Any

import pytest

from drainer.operate.control.http import NodeState, add_routes
from drainer.stream.pull import collector
from tidb_binlog.cluster import node
from tidb_binlog.door.http.routes import Guard, Peer, Request, Response, Routes


class Source:
    stored_ts = 412361808537191540

    def document(self) -> dict[str, Any]:
        return {"PumpPos": {"pump-a:8250": 412361808550297954}, "Synced": False, "LastTS": 1, "TsMap": ""}


class Everybody(Guard):
    def refusal(self, request: Request) -> Response | None:
        return None


class Nobody(Guard):
    def refusal(self, request: Request) -> Response | None:
        return Response(403, b"no\n")


class Node:
    def __init__(self, state: str = node.ONLINE) -> None:
        self.state = NodeState("d:8249", state)
        self.stopped = 0
        self.routes = Routes()
        add_routes(self.routes, Source(), self.state, self._stop)

    def _stop(self) -> None:
        self.stopped += 1

    async def ask(self, method: str, target: str, guard: Guard | None = None) -> tuple[int, str]:
        request = Request(method, target, "127.0.0.1:1", None, Peer("127.0.0.1"))
        response = await self.routes.answer(request, guard or Everybody())
        return response.status, response.body.decode()


async def test_status_and_checkpoint() -> None:
    asked = Node()
    assert await asked.ask("GET", "/status") == (
        200,
        '{"PumpPos":{"pump-a:8250":412361808550297954},"Synced":false,"LastTS":1,"TsMap":""}\n',
    )
    assert await asked.ask("GET", "/commit_ts") == (
        200,
        '{\n  "message": "get drainer\'s latest ts success!",\n  "code": 200,\n'
        '  "data": {\n    "ts": 412361808537191540\n  }\n}\n',
    )


def reply(message: str, code: int) -> tuple[int, str]:
    return 200, f'{{\n  "message": "{message}",\n  "code": {code},\n  "data": null\n}}\n'


@pytest.mark.parametrize(("action", "state"), [("pause", node.PAUSING), ("close", node.CLOSING)])
async def test_a_state_change_ends_the_process_and_says_so(action: str, state: str) -> None:
    asked = Node()
    assert await asked.ask("PUT", f"/state/d:8249/{action}") == reply(f"apply action {action} success!", 200)
    assert (asked.state.state, asked.stopped, asked.state.told_to_leave) == (state, 1, True)


async def test_refusals_are_checked_in_gos_order_and_answer_200() -> None:
    paused = Node(node.PAUSING)
    assert await paused.ask("PUT", "/state/other/nonsense") == reply(
        "invalid nodeID other, this pump's nodeID is d:8249", 3
    )
    assert await paused.ask("PUT", "/state/d:8249/nonsense") == reply(
        "this pump's state is pausing, apply nonsense failed!", 3
    )
    asked = Node()
    assert await asked.ask("PUT", "/state/d:8249/nonsense") == reply("invalid action nonsense", 3)
    assert asked.stopped == paused.stopped == 0
    assert not asked.state.told_to_leave


async def test_methods_paths_and_who_may() -> None:
    asked = Node()
    assert (await asked.ask("POST", "/status"))[0] == 405
    assert (await asked.ask("GET", "/state/d:8249/pause"))[0] == 405
    assert (await asked.ask("GET", "/nothing"))[0] == 404
    assert (await asked.ask("PUT", "/state/d:8249/pause", Nobody()))[0] == 403
    assert asked.stopped == 0
    assert collector.PUMP_POSITION is not None  # it declares metrics of its own
    status, text = await asked.ask("GET", "/metrics")
    assert status == 200
    for name in (
        "checkpoint_tso",
        "checkpoint_delay_seconds",
        "event",
        "execute_duration_time",
        "query_duration_time",
        "binlog_reach_duration_time",
        "read_binlog_size",
        "queue_size",
        "pump_position",
        "ddl_jobs_total",
    ):
        assert f"# HELP binlog_drainer_{name} " in text, name
