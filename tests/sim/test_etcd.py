"""The world's etcd beside a real one: the same requests have the same answers, revision for revision."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.fakes import virtual_time
from tests.sim.etcd import EtcdStore, SimEndpoint
from tests.sim.network import Network
from tests.sim.scheduling import SimLoop, begin
from tidb_binlog.errors import BinlogError
from tidb_binlog.etcd import client as etcd
from tidb_binlog.etcd.client import Deleted, EtcdClient, KeyValue, TxnResult

STEPS: Final = 300
KEYS: Final = tuple(f"/sim/{letter}".encode() for letter in "abcde")


class Asked:
    """What a client answers, with revisions counted from the first one and leases by their order."""

    def __init__(self, client: EtcdClient, seed: int) -> None:
        self._client = client
        self._rng = random.Random(seed)
        self._base = 0
        self._leases: list[int] = []
        self._changed: dict[bytes, int] = {}  # the revision of each key as it was seen last

    async def run(self) -> list[Any]:
        self._base, _ = await self._client.range(b"/sim/")
        watch = self._client.watch(b"/sim/", self._base + 1)
        await anext(watch)
        answers = []
        for _ in range(STEPS):
            step = self._rng.choice((self._txn, self._txn, self._txn, self._range, self._lease, self._revoke))
            try:
                answers.append(await step())
            except BinlogError as error:
                answers.append(type(error).__name__)
        end, _ = await self._client.range(b"/sim/")
        reached = self._base
        while reached < end:
            reached, changes = await anext(watch)
            answers.append((reached - self._base, sorted(map(repr, map(self._shown, changes)))))
        await watch.aclose()
        return answers

    def _operation(self, depth: int = 0) -> Any:
        key = self._rng.choice(KEYS)
        kind = self._rng.randrange(4 if depth else 5)
        if kind < 2:
            lease = self._rng.choice([0, *self._leases, 77]) if kind else 0
            return etcd.put(key, b"%d" % self._rng.randrange(100), lease)
        if kind == 2:
            return etcd.get(key)
        if kind == 3:
            return etcd.delete(key)
        inner = self._rng.choice(KEYS)
        return etcd.nested(
            [etcd.mod_is(inner, self._changed.get(inner, 0))], [etcd.get(inner)], [etcd.get(key)]
        )

    async def _txn(self) -> Any:
        keys: set[bytes] = set()
        operations = []
        for _ in range(self._rng.randint(1, 3)):
            operation = self._operation()
            (_, request), *_ = operation.ListFields()
            key = getattr(request, "key", b"")  # one key is not put twice in a transaction
            if key not in keys:
                operations.append(operation)
            keys.add(key)
        key = self._rng.choice(KEYS)
        compare = [etcd.mod_is(key, self._rng.choice((self._changed.get(key, 0), 0)))]
        return self._result(await self._client.txn(compare, operations, [etcd.get(each) for each in KEYS]))

    def _result(self, result: TxnResult) -> Any:
        return (
            result.succeeded,
            result.revision - self._base,
            [
                ([self._shown(pair) for pair in part.kvs], part.nested and self._result(part.nested))
                for part in result.results
            ],
        )

    def _shown(self, pair: KeyValue | Deleted) -> Any:
        if isinstance(pair, Deleted):
            return replace(pair, mod_revision=pair.mod_revision - self._base)
        self._changed[pair.key] = pair.mod_revision
        changed, created = pair.mod_revision - self._base, pair.create_revision - self._base
        return replace(pair, mod_revision=changed, create_revision=created)

    async def _range(self) -> Any:
        revision, pairs = await self._client.range(
            b"/sim/", self._rng.choice((b"", *KEYS)), self._rng.randrange(4)
        )
        return revision - self._base, [self._shown(pair) for pair in pairs]

    async def _lease(self) -> Any:
        if len(self._leases) < 3:
            self._leases.append((await self._client.grant(3600)).id)
        return bool(await self._client.keep_alive(self._rng.choice((*self._leases, 77))))

    async def _revoke(self) -> Any:
        if self._leases:
            await self._client.revoke(self._leases.pop(self._rng.randrange(len(self._leases))))


def in_a_world(
    ask: Callable[[EtcdClient], Awaitable[list[Any]]], monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    loop = SimLoop(random.Random(0))
    begin(loop)
    store = EtcdStore(Network(loop, lambda *_: None))
    monkeypatch.setattr(etcd, "Client", lambda address, **_: SimEndpoint(store, address))

    async def main() -> list[Any]:
        return await ask(await EtcdClient.connect("http://etcd:2379"))

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        answers = runner.run(main())
    monkeypatch.undo()
    return answers


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(3))
def test_the_same_requests_have_the_same_answers(
    seed: int, etcd_clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = in_a_world(lambda client: Asked(client, seed).run(), monkeypatch)

    async def real() -> list[Any]:
        client = await EtcdClient.connect(etcd_clean)
        try:
            return await Asked(client, seed).run()
        finally:
            await client.close()

    assert simulated == asyncio.run(real())


def test_a_lease_that_nobody_extends_takes_its_keys_along(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(client: EtcdClient) -> list[Any]:
        lease = await client.grant(5)
        await client.put(KEYS[0], b"here", lease.id)
        there = []
        for _ in range(4):
            await client.keep_alive(lease.id)
            await virtual_time.passes(3)
            there.append(await client.get(KEYS[0]) is not None)
        await virtual_time.passes(3)
        return [*there, await client.get(KEYS[0]) is None]

    assert in_a_world(ask, monkeypatch) == [True] * 5
