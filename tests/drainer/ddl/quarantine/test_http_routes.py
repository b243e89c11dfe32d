"""The DDL routes behind a real door, and `binlogctl ddl` in front of it: answers, output and exit codes."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from binlogctl.cli import command_line
from binlogctl.commands import ddl as ctl_ddl
from binlogctl.commands.ddl import DdlCommand, addresses_of
from drainer.ddl.policy import Policy, Ruling
from drainer.ddl.quarantine.http_routes import add_routes
from drainer.ddl.quarantine.store import Decided
from drainer.ddl.rules import parse
from tidb_binlog.cluster.node import OFFLINE, ONLINE, NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Guard, Peer, Request, Response, Routes
from tidb_binlog.door.server.listener import serve
from tidb_binlog.errors import Conflict, FlagError, Rejected, Unavailable

WAITING = {
    "job_id": 7, "commit_ts": 300, "tables": ["d.t"], "query": "ALTER TABLE t ADD b INT", "reason": "1064",
    "since_ms": 1_700_000_000_000, "state": "waiting for a decision", "decision": "", "text": "",
    "applied_ts": 299, "kept_bytes": 3 << 20, "possible": ["retry", "skip", "rewrite"],
}  # fmt: skip
RULES = ({"kind": "add-index", "db-name": "shop", "action": "skip"},)


class FakeController:
    """What the routes see of a controller on which job 7 waits and job 8 is being carried out."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, str, str]] = []
        self.policy = Policy(parse(RULES))

    def documents(self) -> list[dict[str, Any]]:
        return [WAITING, {**WAITING, "job_id": 8}]

    def rules(self) -> list[dict[str, Any]]:
        return self.policy.documents()

    def explain(self, action: int, names: list[tuple[str, str]], query: str) -> Ruling:
        return self.policy.explain(action, names, query)

    async def decisions(self) -> list[Decided]:
        return [Decided(1, 5, 1_700_000_000_000, "192.0.2.1", "skip", "", "skipped: decision 1")]

    async def decide(self, job_id: int, action: str, text: str, asked_from: str) -> dict[str, Any]:
        if job_id == 8:
            raise Conflict("DDL job 8 is being carried out", hint="look again")
        if job_id != 7:
            raise Rejected(f"DDL job {job_id} does not wait", hint="`binlogctl ddl list`")
        if action == "rewrite" and not text:
            raise Rejected("rewrite needs the text", hint="--text")
        self.asked.append((job_id, action, text, asked_from))
        return {**WAITING, "decision": action, "text": text}


@contextlib.asynccontextmanager
async def drainer(controller: FakeController | None, guard: Guard | None = None) -> AsyncIterator[str]:
    """The address of a port that has the routes, or none of them."""
    routes = Routes()
    if controller is not None:
        add_routes(routes, lambda: controller)
    server = await serve([], routes, "127.0.0.1", 0, guard=guard or AdminGuard())
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0.1)


class Nobody:
    def refusal(self, request: Request) -> Response | None:
        return Response(403, b"refused: 127.0.0.1 may not administrate this node\n")


def command(verb: str, job_id: int = 0, text: str = "") -> DdlCommand:
    made = DdlCommand.of(f"ddl-{verb}", job_id, text)
    assert made is not None
    return made


async def test_commands_that_decide_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    """Each of them is taken by the command line as it is printed."""
    async with drainer(FakeController()) as address:
        await ctl_ddl.run(replace(command("list"), node_id="d 1"), address, None, "text")
    printed = capsys.readouterr().out
    commands = [
        line.split("decide  binlogctl ", 1)[1] for line in printed.splitlines() if "  decide  " in line
    ]
    assert len(commands) == 6
    for line, job in zip(commands, "777888", strict=True):
        call = command_line.parse(shlex.split(line), {})
        assert isinstance(call, command_line.Call)
        assert (call.command.words, call.words, call.settings.node_id) == (
            f"ddl {line.split()[1]}",
            (job,),
            "d 1",
        )
    assert "  why     " in printed
    assert "  DDL     " in printed


async def test_on_a_terminal_what_waits_is_a_table_with_the_commands_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    async with drainer(FakeController()) as address:
        await ctl_ddl.run(replace(command("list"), node_id="d"), address, None, "text")
    printed = capsys.readouterr().out
    assert "2 waiting DDL at d" in printed
    assert printed.count(WAITING["query"]) == 2, "of each of the two, in the table alone"
    assert "DDL     " not in printed
    assert "  decide  binlogctl ddl retry 7 -node-id d" in printed


class NoRegistry:
    async def view(self) -> None:
        return None


async def test_one_that_does_not_answer_hides_nothing_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = command_line.parse(["ddl", "list", "-output", "json"], {})
    assert isinstance(call, command_line.Call)
    monkeypatch.setattr(ctl_ddl.connection, "registry", lambda settings: contextlib.nullcontext(NoRegistry()))
    async with drainer(FakeController()) as address:
        asked = {"a": "127.0.0.1:1", "b b": address, "c": "127.0.0.1:1"}
        monkeypatch.setattr(ctl_ddl, "addresses_of", lambda *arguments: asked)
        with pytest.raises(Unavailable):
            await ctl_ddl.call(call)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["node_id"], len(printed["waiting"])) == ("b b", 2)


@pytest.mark.parametrize("output", ["log", "table", "json"])
async def test_what_waits_in_every_form(
    output: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv("COLUMNS", "200")
    async with drainer(FakeController()) as address:
        await ctl_ddl.run(command("list"), address, None, output)
        listed = capsys.readouterr().out
        await ctl_ddl.run(command("show", 7), address, None, output)
        shown = capsys.readouterr().out
        await ctl_ddl.run(command("show", 5), address, None, output)
        decided = capsys.readouterr().out
    if output == "json":
        assert json.loads(listed)["waiting"] == FakeController().documents()
        assert json.loads(listed)["rules"][0]["action"] == "skip"
        assert json.loads(shown) == {"waiting": WAITING, "decisions": []}
        assert json.loads(decided)["waiting"] is None
    if output == "table":
        for text in (listed, shown):
            assert "waiting for a decision" in " ".join(text.split())
        assert "3.0 MiB" in listed
        assert "192.0.2.1" in listed
    if output == "log":
        found = [record.message for record in caplog.records if record.message.startswith("DDL ")]
        assert found == ["DDL waits", "DDL waits", "DDL decision", "DDL waits", "DDL decision"]


async def test_deciding() -> None:
    controller = FakeController()
    async with drainer(controller) as address:
        await ctl_ddl.run(command("rewrite", 7, "ALTER TABLE t ADD KEY (`ä`)"), address, None, "json")
        await ctl_ddl.run(command("skip", 7), address, None, "json")
        with pytest.raises(Conflict, match="job 8 is being carried out") as late:
            await ctl_ddl.run(command("retry", 8), address, None, "json")
        with pytest.raises(Rejected, match="job 9 does not wait"):
            await ctl_ddl.run(command("retry", 9), address, None, "json")
        with pytest.raises(Rejected, match="the text is too large"):
            await ctl_ddl.run(command("rewrite", 7, "x" * 40_000), address, None, "json")
    assert late.value.exit_code == 5
    assert controller.asked == [
        (7, "rewrite", "ALTER TABLE t ADD KEY (`ä`)", "127.0.0.1"),
        (7, "skip", "", "127.0.0.1"),
    ]


async def test_who_may_not_administrate_decides_nothing() -> None:
    controller = FakeController()
    async with drainer(controller, Nobody()) as address:
        with pytest.raises(Rejected, match="may not administrate"):
            await ctl_ddl.run(command("skip", 7), address, None, "json")
        await ctl_ddl.run(command("list"), address, None, "json")
    assert controller.asked == []


async def test_a_drainer_that_decides_no_ddl_and_one_that_is_away() -> None:
    async with drainer(None) as address:
        with pytest.raises(Rejected, match="decides no DDL"):
            await ctl_ddl.run(command("list"), address, None, "json")
    with pytest.raises(Unavailable, match="does not answer"):
        await ctl_ddl.run(command("list"), address, None, "json")


@pytest.mark.parametrize(
    ("query", "status", "rule"),
    [
        ("kind=add-index&db=shop&table=t", 200, 1),
        ("kind=add-index&db=other&table=t", 200, 0),
        ("kind=add_column&db=shop&sql=x", 200, 0),
        ("kind=index", 400, None),
        ("", 400, None),
    ],
)
async def test_which_rule_would_decide(query: str, status: int, rule: int | None) -> None:
    routes = Routes()
    add_routes(routes, lambda: FakeController())
    request = Request("GET", f"/ddl-rule?{query}", "h", None, Peer(""))
    answer = await routes.answer(request, AdminGuard())
    assert answer.status == status
    if rule is not None:
        assert json.loads(answer.body)["data"]["rule"] == rule


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/ddl/7", b"", 200),
        ("GET", "/ddl/x", b"", 404),
        ("GET", "/ddl/99999999999999999999999", b"", 404),
        ("PUT", "/ddl/7/forget", b"", 400),
        ("PUT", "/ddl/7/rewrite", b"\xff", 400),
        ("PUT", "/ddl/7/rewrite", b" ", 400),
        ("PUT", "/ddl/9/skip", b"", 404),
        ("PUT", "/ddl/7/rewrite", None, 413),
        ("POST", "/ddl/7/skip", b"", 405),
    ],
)
async def test_statuses(method: str, path: str, body: bytes | None, status: int) -> None:
    routes = Routes()
    add_routes(routes, lambda: FakeController())
    request = Request(method, path, "localhost", None, Peer("127.0.0.1"), body)
    assert (await routes.answer(request, AdminGuard())).status == status


def test_the_subcommand_is_the_same_as_its_flags() -> None:
    assert DdlCommand.of("pumps", 0, "") is None
    for verb, job_id, text in (("skip", 0, ""), ("rewrite", 7, " "), ("retry", 7, "x")):
        with pytest.raises(FlagError):
            DdlCommand.of(f"ddl-{verb}", job_id, text)


def test_which_drainer_is_meant() -> None:
    def entry(name: str, state: str, alive: bool | None) -> NodeEntry:
        return NodeEntry(NodeStatus(name, f"{name}:1", state), 1, alive)

    def view(*entries: NodeEntry) -> ClusterView:
        return ClusterView(1, {}, {each.status.node_id: each for each in entries})

    gone, off = entry("gone", ONLINE, False), entry("off", OFFLINE, None)
    one, go = entry("one", ONLINE, True), entry("go", ONLINE, None)
    reader = NodeEntry(replace(one.status, node_id="r", label={"labels": {"kind": "reader"}}), 1, True)
    assert addresses_of(view(gone, off, one, reader), "", "skip") == {"one": "one:1"}
    assert addresses_of(view(one, go), "go", "retry") == {"go": "go:1"}
    assert addresses_of(view(one, go, gone), "", "list") == {"go": "go:1", "one": "one:1"}
    assert addresses_of(view(one, go, gone), "", "show") == {"go": "go:1", "one": "one:1"}
    with pytest.raises(Rejected, match="running: go, one"):
        addresses_of(view(one, go), "", "skip")
    with pytest.raises(Rejected, match="running: none"):
        addresses_of(view(gone, off), "", "list")
    with pytest.raises(Rejected, match="no drainer two"):
        addresses_of(view(one), "two", "list")
