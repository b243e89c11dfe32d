"""binlogctl tail over a real pump: its lines, where it begins and ends, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import drainer
from binlogctl.commands import tail
from drainer.txn import Ddl
from pumpclient import Publisher, column, open_publisher
from tests.deploy.binlogctl.conftest import Ctl
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start
from tests.waiting import PATIENCE_S
from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import PUMPS
from tidb_binlog.errors import Corruption
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.net.port import free_ports

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[4]
COLUMNS = [
    column("id", "bigint", nullable=False),
    column("item", "varchar(400)"),
    column("price", "decimal(8,2)"),
    column("data", "varbinary(20)"),
]
PEN = {"id": 1, "item": "pen", "price": "1.50", "data": b"\x00\xff"}
INK = {"id": 2, "item": "in\x1b[2J\nk", "price": None, "data": None}


@dataclass(frozen=True)
class Shop:
    """A cluster with a few changes; `commits` are theirs."""

    endpoint: str
    publisher: Publisher
    commits: list[int]

    async def change(self, *inserted: dict[str, object]) -> int:
        async with self.publisher.transaction() as txn:
            for row in inserted:
                txn.insert("shop.orders", row)
        return txn.commit_ts


@pytest.fixture
async def shop(pump: Start, etcd_clean: str) -> AsyncIterator[Shop]:
    await pump("-node-id=p1").start_and_wait()
    endpoint = etcd_clean.removeprefix("http://")
    async with await open_publisher(endpoint) as publisher:
        await publisher.create_database("shop")
        await publisher.create_table("shop.orders", COLUMNS, primary_key=["id"])
        await publisher.create_table("shop.other", COLUMNS[:1], primary_key=["id"])
        made = Shop(endpoint, publisher, [])
        made.commits.append(await made.change(PEN, INK))
        async with publisher.transaction() as txn:
            txn.update("shop.orders", PEN, {**PEN, "price": "1.75"})
            txn.delete("shop.orders", INK)
            txn.insert("shop.other", {"id": 9})
        made.commits.append(txn.commit_ts)
        yield made


@contextlib.contextmanager
def process(shop: Shop, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """It ends with the block, or when it takes far too long: reads come to an end then, too."""
    running = subprocess.Popen(
        [sys.executable, "-m", "binlogctl", "tail", "-pd-urls", shop.endpoint, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "", "PYTHONUNBUFFERED": ""},
        **options,
    )
    deadline = threading.Timer(PATIENCE_S, running.kill)
    deadline.start()
    try:
        with running:
            yield running
    finally:
        deadline.cancel()


async def test_a_line_a_row_in_the_order_of_the_commits(shop: Shop, ctl: Ctl) -> None:
    done = await ctl(
        "tail", "-pd-urls", shop.endpoint, "-from", "oldest", "-limit", "5", "-time-zone", "Asia/Shanghai"
    )
    assert (done.code, done.err) == (0, "")
    lines = [line.split("  ", 1) for line in done.out.splitlines()]
    assert [rest for _, rest in lines] == [
        "ddl     CREATE DATABASE `shop`",
        "shop  ddl     CREATE TABLE `orders` (`id` BIGINT NOT NULL, `item` VARCHAR(400),"
        " `price` DECIMAL(8,2), `data` VARBINARY(20), PRIMARY KEY (`id`))",
        "shop  ddl     CREATE TABLE `other` (`id` BIGINT NOT NULL, PRIMARY KEY (`id`))",
        "shop.orders  insert  id=1  item: 'pen', price: 1.50, data: 0x00FF",
        "shop.orders  insert  id=2  item: 'in\\x1b[2J\\nk', price: NULL, data: NULL",
        "shop.orders  update  id=1  price: 1.50 -> 1.75",
        "shop.orders  delete  id=2  item: 'in\\x1b[2J\\nk', price: NULL, data: NULL",
        "shop.other  insert  id=9",
    ]
    assert all(len(time) == 23 for time, _ in lines)


async def test_json_is_a_message_a_row(shop: Shop, ctl: Ctl) -> None:
    done = await ctl(
        *("tail", "-pd-urls", shop.endpoint, "-from", str(shop.commits[0] - 1)),
        *("-until", str(shop.commits[1]), "-output", "json"),
    )
    assert (done.code, done.err) == (0, "")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["database"], row["table"], row["type"]) for row in rows] == [
        ("shop", "orders", "INSERT"),
        ("shop", "orders", "INSERT"),
        ("shop", "orders", "UPDATE"),
        ("shop", "orders", "DELETE"),
        ("shop", "other", "INSERT"),
    ]
    assert [row["_tidb"] for row in rows] == [
        {"commitTs": commit_ts, "seq": seq}
        for commit_ts, seqs in zip(shop.commits, (2, 3), strict=True)
        for seq in range(seqs)
    ]
    assert rows[1]["data"] == [{"id": "2", "item": "in\x1b[2J\nk", "price": None, "data": None}]
    assert "\x1b" not in done.out
    assert rows[2]["old"][0]["price"] == "1.50"
    page = (ROOT / "docs" / "tail.md").read_text()
    assert [key for key in (*rows[0], "_tidb.commitTs", "_tidb.seq") if f"`{key}`" not in page] == []


async def test_tables_are_chosen_and_a_quiet_stream_ends_in_time(shop: Shop, ctl: Ctl) -> None:
    at = ("-pd-urls", shop.endpoint)
    done = await ctl("tail", *at, "-from", "-1h", "-until", "now", "-tables", "shop.*,!shop.orders")
    assert [line.split("  ", 1)[1] for line in done.out.splitlines() if "ddl" not in line] == [
        "shop.other  insert  id=9"
    ]
    done = await ctl("tail", *at, "-from", "now", "-until", "now")
    assert (done.code, done.out) == (0, "")


async def test_a_condition_chooses_rows(shop: Shop, ctl: Ctl) -> None:
    shown = ("-pd-urls", shop.endpoint, "-tables", "shop.orders", "-from", str(shop.commits[0] - 1))
    done = await ctl("tail", *shown, "-until", str(shop.commits[1]), "-where", "price > 1.6")
    assert [line.split("  ", 1)[1] for line in done.out.splitlines()] == [
        "shop.orders  insert  id=1  item: 'pen', price: 1.75, data: 0x00FF"  # the update brought it in
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("-where", "price >"), 1, "-where: "),
        (("-where", "colour = 1"), 1, "-where names column colour"),
        (("-tables", "shop.ordrs"), 2, "-tables: shop.ordrs fits no table of the upstream, which has 2"),
        (("-tables", "orders"), 1, "tables has an entry that is no pattern: 'orders'"),
        (("-from", "yesterday"), 2, "-from: 'yesterday' is no time"),
        (("-from", "2100-01-01"), 1, "lies in the future"),
        (("-until", "x"), 2, "-until: 'x' is no time"),
        (("-limit", "-1"), 2, "limit is -1"),
        (("-time-zone", "Mars"), 2, "unknown time zone Mars"),
    ],
)
async def test_what_cannot_be_is_one_line(
    shop: Shop, ctl: Ctl, arguments: tuple[str, str], code: int, text: str
) -> None:
    done = await ctl("tail", "-pd-urls", shop.endpoint, *arguments)
    assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 1), done.err
    assert text in done.err
    assert "(" in done.err, "says what to do"


async def test_every_command_and_snippet_of_the_page_runs(shop: Shop, ctl: Ctl, etcd_clean: str) -> None:
    page = (ROOT / "docs" / "tail.md").read_text()
    (block,) = re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S)
    shown = []
    for command in block.splitlines():
        program, *arguments = shlex.split(command.replace("127.0.0.1:2379", shop.endpoint))
        assert program == ".venv/bin/binlogctl"
        ends = [] if "-until" in arguments else ["-until", "now"]
        begins = [] if "-from" in arguments else ["-from", "oldest"]
        done = await ctl(*arguments, *begins, *ends)
        assert (done.code, done.err) == (0, ""), command
        shown.append(len(done.out.splitlines()))
    assert shown == [8, 8, 2, 8]
    readers = (ROOT / "docs" / "readers.md").read_text()
    (snippet,) = re.findall(r"^```python\n(.*?)^```$", readers, re.M | re.S)
    snippet = snippet.replace("127.0.0.1:2379", etcd_clean).replace(":8300", f":{free_ports(1)[0]}")
    names: dict[str, Any] = {"drainer": drainer}
    address, asynchronous, synchronous = snippet.splitlines()
    exec(address, names)
    exec(synchronous, names)
    assert isinstance(names["stream"], drainer.SyncSubscription)
    exec(asynchronous, names)
    async with names["stream"]:
        registry = await connect_registry(etcd_clean)
        assert (await registry.view()).drainers["search-index"].status.host.startswith("reader.example:")
        await registry.close()


def test_the_page_names_examples_that_there_are() -> None:
    page = (ROOT / "docs" / "readers.md").read_text()
    named = re.findall(r"\]\(\.\./(examples/\w+\.py)\)", page)
    assert len(named) == 5
    for path in named:
        assert (ROOT / path).is_file()


async def test_ctrl_c_ends_it_and_nothing_is_left(shop: Shop) -> None:
    with process(shop, "-from", "oldest", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert b"CREATE DATABASE" in await asyncio.to_thread(running.stdout.readline)
        await shop.change({**PEN, "id": 3})
        while b"id=3" not in (line := await asyncio.to_thread(running.stdout.readline)):
            assert line
        registry = await connect_registry(shop.endpoint)
        view = await registry.view()
        await registry.close()
        assert view.drainers == {}
        running.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(running.wait) == 130
        assert (running.stdout.read(), running.stderr.read()) == (b"", b"")


async def test_who_reads_it_may_go_away(shop: Shop) -> None:
    with process(shop, "-from", "oldest", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert await asyncio.to_thread(running.stdout.readline)
        running.stdout.close()
        await shop.change({**PEN, "id": 3})
        assert await asyncio.to_thread(running.wait) == 0
        assert running.stderr.read() == b""


async def test_on_a_terminal_long_values_are_cut_and_nothing_steers_it(shop: Shop) -> None:
    await shop.change({**PEN, "id": 4, "item": "\x1b]0;title\x07" + "x" * 300})
    ours, theirs = pty.openpty()

    def screen() -> bytes:
        seen = b""
        while True:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other side is closed
                return seen

    with process(shop, "-from", "oldest", "-limit", "6", stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        seen = await asyncio.to_thread(screen)
        assert await asyncio.to_thread(running.wait) == 0
    os.close(ours)
    assert b"\\x1b]0;title\\x07" in seen
    assert b"...(+" in seen
    assert b"x" * 100 not in seen
    assert b"\x1b[32minsert\x1b[0m" in seen
    assert b"\x1b" not in re.sub(rb"\x1b\[(3[1236]|0)m", b"", seen)


async def test_it_says_what_it_waits_for(shop: Shop, etcd_clean: str) -> None:
    registry = await connect_registry(etcd_clean)
    await registry.put(PUMPS, NodeStatus("silent", "127.0.0.1:1", node.ONLINE, 1, 1), None)
    await registry.close()
    with process(
        shop, "-from", str(shop.commits[0] - 1), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stderr is not None
        said = await asyncio.to_thread(running.stderr.readline)
        assert said.startswith(b"binlogctl: waits for pump silent, not reachable"), said
        running.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(running.wait) == 130


async def test_a_pump_that_had_nothing_takes_nothing_along(shop: Shop, pump: Start, ctl: Ctl) -> None:
    """After its close a stream begins where it did before, by time and at the oldest change."""
    empty = pump("-node-id=empty", directory="empty")
    await empty.start_and_wait()
    empty.stop()
    await empty.start_and_wait()  # a restart, after which only marks are there
    assert empty.http("/state/empty/close?force=true", "PUT")[0] == 200
    assert await asyncio.to_thread(empty.wait) == 0
    for begin in ("-15m", "oldest"):
        done = await ctl("tail", "-pd-urls", shop.endpoint, "-from", begin, "-until", "now")
        assert (done.code, done.err) == (0, ""), begin
        assert len(done.out.splitlines()) == 8, begin


async def test_an_end_that_a_paused_pump_holds_up_is_an_error(
    shop: Shop, pump: Start, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "QUIET_S", 0.5)
    monkeypatch.setattr(tail, "ABSENT_S", 1.5)
    second = pump("-node-id=p2", directory="p2")
    await second.start_and_wait()
    second.stop()
    done = await ctl("tail", "-pd-urls", shop.endpoint, "-from", "-15m", "-until", "now")
    assert (done.code, done.out) == (3, "")
    assert "-until cannot be reached: pump p2 is paused or dead, and may hold more" in done.err


async def test_what_came_before_a_failure_is_printed(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    class Damaged:
        """A stream that is damaged after a DDL."""

        live: Any = property(lambda self: self)

        def __init__(self, *_: object, **__: object) -> None:
            self._items = [Ddl(1 << 40, 1, 3, "d", "CREATE TABLE t (a INT)", (("d", "t"),), 1)]

        async def open(self) -> None: ...

        async def close(self) -> None: ...

        def ready(self) -> Ddl:
            if not self._items:
                raise Corruption("bytes are damaged")
            return self._items.pop()

    monkeypatch.setattr("drainer.reading.subscribe.subscription.EncodedStream", Damaged)
    for output in ((), ("-output", "json")):
        done = await ctl("tail", *output)
        assert done.code == Corruption.exit_code
        assert "CREATE TABLE t" in done.out, output
