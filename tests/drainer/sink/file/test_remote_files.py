"""Remote files: an archive in an object store, through kills, rivals, outages: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drainer.checkpoint.savepoint import Savepoint
from drainer.formats import binlog_file
from drainer.formats.obinlog.writer import commit_ts_of
from drainer.places import object_store
from drainer.places.place import Place
from drainer.reading.archive.archive import open_archive
from drainer.sink.file import archive, file_sink
from drainer.sink.file.remote_files import OWNER
from drainer.stream.pull.merged import MergedBatch
from drainer.txn import Transaction
from tests.drainer.support.archive_life import Life, Ready, payloads, whole
from tests.drainer.support.relay_world import items
from tests.object_store import SECRET, ObjectStore
from tests.rig.proxy import Proxy
from tests.waiting import PATIENCE_S, until
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import (
    BinlogError,
    Conflict,
    Corruption,
    DirectoryLocked,
    ForeignDirectory,
    Unavailable,
)
from tidb_binlog.net.port import LOOPBACK
from tidb_binlog.record import decode_file

pytestmark = pytest.mark.integration


def records(each_s3: ObjectStore, prefix: str = "a") -> list[bytes]:
    """Of all segments, in order; each is whole."""
    objects = {name.removeprefix(f"{prefix}/"): data for name, data in each_s3.objects().items()}
    payloads = []
    for _, name in binlog_file.in_order(prefix, [name for name in objects if "/" not in name]):
        at = 0
        while at < len(objects[name]):
            payload, at = decode_file(objects[name], at)
            payloads.append(payload)
    return payloads


def changes(place: str) -> list[str]:
    return [repr(change) for change in open_archive(place)]


def test_it_reads_as_the_local_one(each_s3: ObjectStore, tmp_path: Path) -> None:
    source = Ready(items("basic"))
    asyncio.run(whole(tmp_path / "local", source, max_file_size=1500))
    asyncio.run(whole(tmp_path / "remote", source, max_file_size=1500, remote=Place(each_s3.uri("a"))))
    assert records(each_s3) == payloads(tmp_path / "local")
    assert changes(each_s3.uri("a")) == changes(str(tmp_path / "local"))
    names = [name for name in each_s3.objects() if name.startswith("a/binlog-")]
    assert len(names) > 4
    (left,) = (tmp_path / "remote" / "here").glob("binlog-*")
    assert left.name.startswith(max(names).removeprefix("a/"))


def test_definitions_are_uploaded_however_long_those_are_that_were_there(
    each_s3: ObjectStore, tmp_path: Path
) -> None:
    stream = items("ddl")
    seen: dict[int, int] = {}
    for number, item in enumerate(stream):
        for events in item.tables if isinstance(item, Transaction) else ():
            seen.setdefault(id(events.table), number)
    half, source = Ready(stream[: max(seen.values())]), Ready(stream)  # of what follows, one is new
    definitions: dict[str, bytes] = {}
    for prefix in ("a", "b"):
        place = Place(each_s3.uri(prefix))
        asyncio.run(whole(tmp_path / prefix, half, max_file_size=1 << 20, remote=place))
        (name,) = (name for name in each_s3.objects() if name.startswith(f"{prefix}/") and "tables" in name)
        if prefix == "b":
            text = each_s3.objects()[name]
            place.put(name.removeprefix("b/"), text + b"\n" * (len(definitions["a"]) - len(text)))
        asyncio.run(whole(tmp_path / prefix, source, max_file_size=1 << 20, remote=place))
        definitions[prefix] = each_s3.objects()[name]
    assert definitions["b"] == definitions["a"] != text


class Killed(BaseException):
    """As good as kill -9: nothing is done after it."""


class Deaths:
    """Lets a call to the store be the last one, before or after it was served."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self.served = False
        for name in ("put", "create", "exchange", "delete"):
            monkeypatch.setattr(object_store, name, self._dying(getattr(object_store, name)))

    def _dying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def dying(*arguments: Any) -> Any:
            self.left -= 1
            if not self.left and not self.served:
                raise Killed
            answer = call(*arguments)
            if not self.left:
                raise Killed
            return answer

        return dying


async def some(directory: Path, source: Ready, rng: random.Random, **settings: Any) -> None:
    """Uploads and stores of the checkpoint at random between batches; no graceful stop."""
    life = Life(directory, source, **settings)

    async def batches() -> AsyncIterator[MergedBatch]:
        async for batch in life.batches(3):
            yield batch
            if rng.random() < 0.3:
                await life.sink.settled()
                await life.sink.upload()
            if rng.random() < 0.5:
                await life.sink.save()

    try:
        await life.runner.run(batches())
        await life.sink.settled()
        await life.sink.upload()
        await life.sink.save()
    finally:
        await asyncio.to_thread(life.archive.let_go)


@pytest.mark.parametrize("seed", range(2))
def test_a_death_at_any_upload_is_made_good(
    seed: int, each_s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, rng = Ready(items("ddl" if seed % 2 else "keys")), random.Random(seed)
    settings: dict[str, Any] = {"max_file_size": rng.choice([3_000, 20_000])}
    asyncio.run(whole(tmp_path / "whole", source, **settings))
    expected = payloads(tmp_path / "whole")
    deaths, died = Deaths(monkeypatch), 0
    directory = tmp_path / "drainer"
    for _ in range(12):
        deaths.left, deaths.served = rng.randrange(1, 14), rng.random() < 0.5
        try:
            asyncio.run(some(directory, source, rng, remote=Place(each_s3.uri("a")), **settings))
        except Killed:
            died += 1
        there = records(each_s3)
        assert there == expected[: len(there)]
        stored = Savepoint(str(directory)).load()
        rest = [commit_ts_of(payload) for payload in expected[len(there) :]]
        assert stored is None or all(commit_ts > stored.commit_ts for commit_ts in rest)
    deaths.left = -1
    asyncio.run(whole(directory, source, remote=Place(each_s3.uri("a")), **settings))
    assert died > 3
    assert records(each_s3) == expected
    assert changes(each_s3.uri("a")) == changes(str(tmp_path / "whole"))


async def test_what_is_only_here_is_not_believed(each_s3: ObjectStore, tmp_path: Path) -> None:
    source = Ready(items("keys"))
    life = Life(tmp_path, source, remote=Place(each_s3.uri("a")))
    await life.runner.run(life.batches())
    await life.sink.settled()
    await life.sink.save()
    assert records(each_s3) == []
    assert life.sink.stored_ts == life.sink.resolved_ts == 0
    await asyncio.to_thread(life.archive.let_go)
    await whole(tmp_path, source, remote=Place(each_s3.uri("a")))
    assert len(records(each_s3)) == len({commit_ts_of(payload) for payload in records(each_s3)})
    (tmp_path / "here" / "binlog-0000000000000099-20200101000000").write_bytes(b"x")
    (tmp_path / "savepoint").unlink()
    life = Life(tmp_path, source, remote=Place(each_s3.uri("a")))
    assert life.start.commit_ts >= commit_ts_of(records(each_s3)[-2])
    await asyncio.to_thread(life.archive.let_go)


async def test_two_drainers_do_not_write_one_archive(each_s3: ObjectStore, tmp_path: Path) -> None:
    source, place = Ready(items("keys")), Place(each_s3.uri("a"))
    first = Life(tmp_path / "first", source, remote=place)
    with pytest.raises(Conflict, match=r"is written by drainer-1 on .*give each Drainer") as refused:
        Life(tmp_path / "second", source, remote=place, node_id="drainer-2")
    assert "remove s3://" in refused.value.hint
    with pytest.raises(DirectoryLocked):
        Life(tmp_path / "first", source, remote=place)
    second = Life(tmp_path / "second", source, remote=place)  # its successor, on another host
    await second.runner.run(second.batches())
    assert await second.runner.stop(PATIENCE_S)
    expected = each_s3.objects()
    await first.runner.run(first.batches())
    with pytest.raises(Conflict, match="is written by drainer-1"):
        await first.runner.stop(30)
    assert each_s3.objects() == expected


def test_a_stale_upload_does_not_replace_what_came_after_it(
    each_s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token was compared, then the process stood still."""
    source, place = Ready(items("keys")), Place(each_s3.uri("a"))

    async def lives() -> None:
        first = Life(tmp_path / "first", source, remote=place)
        await first.runner.run(first.batches())
        await first.sink.settled()
        exchange = object_store.exchange

        def late(*arguments: Any) -> Any:
            monkeypatch.setattr(object_store, "exchange", exchange)
            asyncio.run(whole(tmp_path / "second", source, remote=place))
            expected.append(each_s3.objects())
            return exchange(*arguments)

        monkeypatch.setattr(object_store, "exchange", late)
        with pytest.raises(Conflict):
            await first.sink.upload()
        await asyncio.to_thread(first.archive.let_go)

    expected: list[dict[str, bytes]] = []
    asyncio.run(lives())
    assert each_s3.objects() == expected[0]


@contextlib.contextmanager
def proxied(port: int) -> Iterator[tuple[Proxy, Callable[[Callable[[], Any]], object]]]:
    """On a loop of its own, since what goes through it blocks."""
    loop, proxy = asyncio.new_event_loop(), Proxy(LOOPBACK, port)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.start(), loop).result()
        yield proxy, loop.call_soon_threadsafe
        asyncio.run_coroutine_threadsafe(proxy.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def test_a_store_that_is_away_is_waited_for(
    s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "UPLOAD_PAUSES_S", (0.01, 0.05))
    source = Ready(items("keys"))
    with proxied(s3.port) as (proxy, on_its_loop):
        query = f"endpoint_override={LOOPBACK}:{proxy.port}&scheme=http&region=us-east-1"
        life = Life(tmp_path, source, remote=Place(s3.uri(f"a?{query}")))
        proxy.lead_to(LOOPBACK, 1)
        on_its_loop(proxy.reset)
        await life.runner.run(life.batches())
        stopping = asyncio.ensure_future(life.runner.stop(120))
        await until(lambda: life.sink.held_up)
        assert f"s3://{s3.bucket}/a" in life.sink.held_up
        assert life.sink.facts()["Archive"]["uploaded_commit_ts"] == life.sink.stored_ts == 0
        proxy.lead_to(LOOPBACK, s3.port)
        assert await stopping
    assert len(records(s3)) == len({commit_ts_of(payload) for payload in records(s3)}) > 0
    assert life.sink.stored_ts == source.stream[-1].commit_ts


async def test_the_stream_waits_where_much_is_to_be_uploaded(
    s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sink, "BACKLOG_MAX", 2)
    monkeypatch.setattr(file_sink, "BUFFERED_BYTES_MAX", 1)
    life = Life(
        tmp_path, Ready(items("keys")), remote=Place(s3.uri("a")), max_file_size=500, upload_interval_s=3600.0
    )
    most = 0

    async def batches() -> AsyncIterator[MergedBatch]:
        nonlocal most
        async for batch in life.batches(1):
            most = max(most, life.archive.backlog)
            yield batch

    await life.runner.run(batches())
    assert await life.runner.stop(PATIENCE_S)
    assert 2 <= most < 8


async def test_segments_older_than_wanted_go(each_s3: ObjectStore, tmp_path: Path) -> None:
    source = Ready(items("basic"))
    await whole(tmp_path, source, remote=Place(each_s3.uri("a")), max_file_size=1500)
    before = sorted(name for name in each_s3.objects() if name.startswith("a/binlog-"))
    clock = ManualClock(2_000_000_000.0)
    life = Life(tmp_path, source, clock, remote=Place(each_s3.uri("a")), max_file_size=1500)
    assert await life.archive.remove_older(10, clock.wall_s()) == len(before) - 1
    await asyncio.to_thread(life.archive.let_go)
    after = [name for name in each_s3.objects() if "binlog-" in name]
    assert before[-1] in after
    assert all(before[-1].removeprefix("a/") in name for name in after)


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        (b"{}", Corruption),
        (b"", Corruption),
        (b'{"token": "", "node_id": "drainer-1", "cluster_id": 9, "host": ""}', ForeignDirectory),
    ],
)
def test_whose_it_is_has_to_be_known(
    each_s3: ObjectStore, tmp_path: Path, owner: bytes, kind: type[BinlogError]
) -> None:
    Place(each_s3.uri("a")).put(OWNER, owner)
    with pytest.raises(kind):
        Life(tmp_path, Ready(items("keys")), remote=Place(each_s3.uri("a")))
    assert each_s3.objects() == {f"a/{OWNER}": owner}


async def test_a_bucket_that_takes_no_more_is_waited_for(
    s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "UPLOAD_PAUSES_S", (0.01, 0.05))
    source = Ready(items("keys"))
    life = Life(tmp_path, source, remote=Place(s3.uri("a")))
    with s3.asking_for_keys():
        with pytest.raises(Unavailable, match="cannot be written: InvalidAccessKeyId") as refused:
            Life(tmp_path / "other", source, remote=Place(s3.uri("b")))
        assert SECRET not in str(refused.value)
        await life.runner.run(life.batches())
        stopping = asyncio.ensure_future(life.runner.stop(120))
        await until(lambda: life.sink.held_up)
        assert SECRET not in life.sink.held_up
        assert life.sink.stored_ts == 0
    assert await stopping
    assert life.sink.stored_ts == source.stream[-1].commit_ts
