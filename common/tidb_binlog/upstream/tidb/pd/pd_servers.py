"""PD's servers: connections to them, who leads, and a call that is brought to the leader.

Drives  one channel per address; a task that asks for the members every minute
Owns    the knowledge who leads (`leadership` decides), the cluster id
Order   a call goes to the leader; after any failure the members are asked at once, then the call goes to a
        leader or an address not tried yet without a pause, otherwise after one. While a call waits for its
        answer they are asked as well: a leader that hangs is left when there is another one
Stops   `close` ends all calls

Every PD may be away and come back, in any order, at the same or at other addresses: what is configured is
kept in mind for ever. Nothing here waits without an end, and no call waits for another one.

Tests   tests/common/upstream/tidb/pd/test_pd.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from tidb_binlog import rpc
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import BinlogError, ConfigError, Conflict, Corruption, Rejected, Unavailable
from tidb_binlog.etcd.client import parse_endpoints
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.observe import log
from tidb_binlog.upstream.tidb.pd.leadership import (
    Leadership,
    MembersAnswer,
    PdMember,
    answer_of_message,
    common_cluster_id,
)
from tidb_binlog.wire import pdpb_pb2

TRY_S: Final = 3.0  # one request, as Go clients wait
DEADLINE_S: Final = 10.0
REFRESH_S: Final = 60.0
DOUBT_S: Final = 1.0  # without an answer; then the members are asked whether it still leads
GRACE_S: Final = 0.3  # for the others, once one has named a leader
LEADERLESS_GRACE_S: Final = 1.0  # for the others, once one has said that there is no leader
PAUSE_FIRST_S: Final = 0.5
PAUSE_MAX_S: Final = 1.0  # Go clients wait up to 3 s; then they notice the end of an election so much later
PING_S: Final = 10.0
HINT: Final = "check that PD runs, and its address"
_GET_MEMBERS: Final = "/pdpb.PD/GetMembers"

_logger = log.get("pd")
_T = TypeVar("_T")
_Reply = TypeVar("_Reply", bound=Message)


class NotPd(Rejected):
    """Who answers there does not know PD's calls: an etcd alone, or another service."""


class PdServers:
    """See the module. `introduce` comes first; one event loop."""

    def __init__(
        self, endpoints: str, *, tls: TlsConfig | None, clock: Clock | None, timeout_s: float
    ) -> None:
        self._addresses = _addresses(endpoints, tls)
        self._tls = tls
        self._clock = clock
        self._try_s = min(TRY_S, timeout_s)
        self._clients: dict[str, rpc.Client] = {}
        self._leadership = Leadership(self._addresses, 0)
        self._refreshing: asyncio.Task[BinlogError | None] | None = None
        self._minutely: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self.cluster_id = 0

    async def introduce(self) -> None:
        """Ask every configured address once and begin to watch the members.

        Raises `Unavailable` if no address answers, `NotPd` if those that do know no PD, `Conflict` if they
        belong to different clusters or some are no PD.
        """
        answers, errors = await self._ask_all(self._addresses)
        said = "; ".join(error.message for error in errors)
        strangers = [error for error in errors if isinstance(error, NotPd)]
        if not answers:
            if strangers:
                raise NotPd(f"there is no PD: {said}", hint="check the address, or choose the other upstream")
            raise Unavailable(f"PD does not answer: {said}", hint=HINT)
        if strangers:
            raise Conflict(f"some of the PD addresses are none: {said}", hint="name PD servers only")
        self.cluster_id = common_cluster_id(answers)
        self._leadership = Leadership(self._addresses, self.cluster_id)
        self._leadership.take(answers)
        self._minutely = asyncio.get_running_loop().create_task(self._refresh_minutely(), name="pd.members")

    async def close(self) -> None:
        """End all calls and connections. Idempotent."""
        self._closed = True
        tasks = {task for task in (self._minutely, self._refreshing) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for client in list(self._clients.values()):  # calls that end may still learn
            await client.close()
        if self._closing:
            await asyncio.wait(self._closing)

    def client(self, address: str) -> rpc.Client:
        """The one connection to an address. Raises `Unavailable` after `close`."""
        if self._closed:
            raise Unavailable("the connection to PD is closed")
        client = self._clients.get(address)
        if client is None:
            client = rpc.Client(address, tls=self._tls, clock=self._clock, ping_s=PING_S)
            self._clients[address] = client
        return client

    async def at_leader(
        self,
        what: str,
        attempt: Callable[[rpc.Client, float], Awaitable[_T]],
        deadline_s: float = DEADLINE_S,
    ) -> _T:
        """What `attempt` (given a connection and seconds) returns at the leader, repeated until it works.

        `attempt` raises `Unavailable` to be repeated elsewhere or later; other errors end the call, but for a
        `Conflict` with a server that turns out to belong to another cluster. Raises `Unavailable` after
        `deadline_s`, with what each address said.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        pauses = Backoff(PAUSE_FIRST_S, PAUSE_MAX_S)
        said: dict[str, str] = {}
        tried: set[str] = set()
        fresh = False  # the members were asked since the last pause
        while True:
            if self._leadership.leader is None and not fresh:
                await self._refresh(deadline)
            address = self._untried(tried)
            if address is None:
                pause_s = pauses.next_s()
                if self._closed or loop.time() + pause_s >= deadline:
                    raise self._unavailable(what, deadline_s, said)
                await asyncio.sleep(pause_s)
                tried.clear()
                fresh = False
                continue
            tried.add(address)
            left_s = max(0.001, deadline - loop.time())
            conflict: Conflict | None = None
            doubts = _Doubts(loop, self._begin_refresh)
            try:
                result = await attempt(self.client(address), min(self._try_s, left_s))
            except Unavailable as error:
                if address not in said or loop.time() < deadline:  # a try cut short shows nothing
                    said[address] = error.message
            except Conflict as error:
                conflict, said[address] = error, error.message
            else:
                self._leadership.worked(address)
                return result
            finally:
                doubts.end()
            self._leadership.failed(address)
            await self._refresh(deadline)
            fresh = True
            if conflict is not None and not self._leadership.is_foreign(address):
                raise conflict

    def _untried(self, tried: set[str]) -> str | None:
        if self._closed:
            return None
        return next((address for address in self._leadership.order() if address not in tried), None)

    def _unavailable(self, what: str, deadline_s: float, said: dict[str, str]) -> Unavailable:
        if self._closed:
            return Unavailable(f"{what}: the connection to PD is closed")
        texts = list(said.values())
        if self._leadership.leader is None:
            texts.append(f"{', '.join(self._leadership.everyone())}: no leader is elected")
        return Unavailable(
            f"PD does not answer {what} within {deadline_s:.3g} s: {'; '.join(texts)}", hint=HINT
        )

    async def _refresh(self, deadline: float) -> None:
        """Ask for the members, together with everybody else who wants to; not beyond `deadline`."""
        if self._closed:
            return
        task = self._begin_refresh()
        await asyncio.wait({task}, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        if task.done() and not task.cancelled() and (error := task.result()) is not None:
            raise type(error)(error.message, hint=error.hint)

    def _begin_refresh(self) -> asyncio.Task[BinlogError | None]:
        if self._refreshing is None or self._refreshing.done():
            loop = asyncio.get_running_loop()
            self._refreshing = loop.create_task(self._ask_members(), name="pd.refresh")
        return self._refreshing

    async def _ask_members(self) -> BinlogError | None:
        """One round; `Conflict` if the cluster is another one. Nobody answering is no error."""
        answers, _ = await self._ask_all(self._leadership.everyone())
        try:
            self._learn(answers)
        except Conflict as error:
            return error
        return None

    def _learn(self, answers: Sequence[MembersAnswer]) -> None:
        """Raises `Conflict` if the cluster is another one."""
        before = self._leadership.leader
        if not self._leadership.take(answers):
            return
        leader = self._leadership.leader
        assert leader is not None
        was = before.name if before else ""
        _logger.info("PD has another leader", leader=leader.name, was=was, at=leader.client_urls)
        for address in before.addresses if before else ():
            self._hang_up(address)

    def _hang_up(self, address: str) -> None:
        """End the calls to an address where the leader was: it may be dead without a word."""
        client = self._clients.pop(address, None)
        if client is not None:
            task = asyncio.get_running_loop().create_task(client.close(), name=f"close {address}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _refresh_minutely(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self._refresh(asyncio.get_running_loop().time() + self._try_s)
            except Conflict as error:
                _logger.error("PD belongs to another cluster", error=error)

    async def _ask_all(self, addresses: Sequence[str]) -> tuple[list[MembersAnswer], list[BinlogError]]:
        """All at once; when one has answered, the others get a little longer: they may hang."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._ask(address), name=f"pd.ask {address}") for address in addresses]
        pending = set(tasks)
        ends = loop.time() + self._try_s
        try:
            while pending and (left_s := ends - loop.time()) > 0:
                done, pending = await asyncio.wait(
                    pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                for answer in (task.result() for task in done):
                    if isinstance(answer, MembersAnswer):
                        grace_s = GRACE_S if answer.leader else LEADERLESS_GRACE_S
                        ends = min(ends, loop.time() + grace_s)
        finally:
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending)
        answers: list[MembersAnswer] = []
        errors: list[BinlogError] = []
        for address, task in zip(addresses, tasks, strict=True):
            answer = Unavailable(f"{address} takes too long") if task.cancelled() else task.result()
            if isinstance(answer, MembersAnswer):
                answers.append(answer)
            else:
                errors.append(answer)
        return answers, errors

    async def _ask(self, address: str) -> MembersAnswer | BinlogError:
        try:
            reply = await self.unary(
                self.client(address), _GET_MEMBERS, pdpb_pb2.GetMembersRequest(), self._try_s
            )
            return answer_of_message(address, read(pdpb_pb2.GetMembersResponse, reply, address))
        except BinlogError as error:
            return error

    async def members(self) -> tuple[PdMember, ...]:
        """All PD servers, as they say now. Raises `Unavailable`, `Conflict`."""
        answers, errors = await self._ask_all(self._leadership.everyone())
        self._learn(answers)
        if not any(answer.cluster_id == self.cluster_id for answer in answers):
            said = "; ".join(error.message for error in errors)
            raise Unavailable(f"PD does not answer: {said}", hint=HINT)
        return self._leadership.members

    @staticmethod
    async def unary(client: rpc.Client, path: str, request: Message, timeout_s: float) -> bytes:
        """Raises `Unavailable`, `Conflict`, `NotPd`."""
        try:
            return await client.unary(path, request.SerializeToString(), timeout_s)
        except rpc.RpcStatus as status:
            raise refusal(client.address, path, status) from None


class _Doubts:
    """Asks every `DOUBT_S` until `end`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ask: Callable[[], object]) -> None:
        self._loop = loop
        self._ask = ask
        self._timer = loop.call_later(DOUBT_S, self._again)

    def _again(self) -> None:
        self._ask()
        self._timer = self._loop.call_later(DOUBT_S, self._again)

    def end(self) -> None:
        self._timer.cancel()


def read(reply_type: type[_Reply], data: bytes, address: str) -> _Reply:
    """A reply of PD. Raises `Corruption`."""
    try:
        return reply_type.FromString(data)
    except DecodeError as error:
        raise Corruption(f"{address} answers what is no {reply_type.__name__}: {error}") from None


def refusal(address: str, path: str, status: rpc.RpcStatus) -> BinlogError:
    """What a status that is not OK means when PD sends it."""
    method = path.rpartition("/")[2]
    if status.code == rpc.UNIMPLEMENTED:
        return NotPd(f"{address} does not know {method}: {status.message}")
    if status.code == rpc.FAILED_PRECONDITION:
        return Conflict(f"{address} refuses {method}: {status.message}", hint="check the address")
    return Unavailable(f"{address} refuses {method}: {status.message}")


def _addresses(endpoints: str, tls: TlsConfig | None) -> list[str]:
    addresses = parse_endpoints(endpoints)
    if tls is None and "https://" in endpoints:
        raise ConfigError("https without TLS files", hint="give ssl-ca, ssl-cert and ssl-key")
    return addresses
