"""Leadership: which address of PD to ask, judged by what its members say and how calls went.

Out    addresses for a call to the leader, best first; addresses to ask for members
Why    the leader moves, and its URLs may be names that only the cluster's own hosts know: then one of the
       configured addresses leads to it, although nothing says which
Holds  the members of the last answers, and per address whether it failed since the leader came
Never  forgets a configured address; uses an address whose server belongs to another cluster
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidb_binlog.errors import Conflict, Unavailable
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.wire import pdpb_pb2


@dataclass(frozen=True, slots=True)
class PdMember:
    """A PD server. `client_urls` as it advertises them."""

    name: str
    member_id: int
    client_urls: tuple[str, ...]
    version: str
    is_leader: bool

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of each URL."""
        return tuple(address_of(url) for url in self.client_urls)


@dataclass(frozen=True, slots=True)
class MembersAnswer:
    """What the server at `address` said; at most one member is the leader, none during an election."""

    address: str
    cluster_id: int
    members: tuple[PdMember, ...]

    @property
    def leader(self) -> PdMember | None:
        return next((member for member in self.members if member.is_leader), None)


def address_of(url: str) -> str:
    """host:port of a URL or of host:port."""
    return (url.partition("://")[2] or url).partition("/")[0]


def answer_of_message(address: str, reply: pdpb_pb2.GetMembersResponse) -> MembersAnswer:
    """Raises `Unavailable` for a reply that only says why there is none."""
    if reply.header.error.type != pdpb_pb2.OK:
        raise Unavailable(f"{address} cannot tell the members: {header_error(reply.header)}")
    if not reply.header.cluster_id:
        raise Unavailable(f"{address} does not know its cluster id yet")
    messages = {message.member_id: message for message in reply.members}
    leader_id = reply.leader.member_id
    if leader_id and leader_id not in messages:
        messages[leader_id] = reply.leader
    members = tuple(
        PdMember(
            message.name,
            message.member_id,
            tuple(message.client_urls),
            message.binary_version.removeprefix("v"),
            bool(leader_id) and message.member_id == leader_id,
        )
        for message in messages.values()
    )
    return MembersAnswer(address, reply.header.cluster_id, members)


def header_error(header: pdpb_pb2.ResponseHeader) -> str:
    """What an unsuccessful header says: `NOT_BOOTSTRAPPED: cluster is not bootstrapped`."""
    names = pdpb_pb2.ErrorType
    number = header.error.type
    name = names.Name(number) if number in names.values() else f"error {number}"
    return f"{name}: {header.error.message}" if header.error.message else name


def common_cluster_id(answers: Sequence[MembersAnswer]) -> int:
    """The cluster id in all answers. Raises `Conflict` if they differ."""
    ids = {answer.cluster_id for answer in answers}
    if len(ids) > 1:
        named = ", ".join(f"{answer.address} {answer.cluster_id}" for answer in answers)
        raise Conflict(
            f"the PD addresses belong to different clusters: {named}", hint="name those of one cluster"
        )
    return ids.pop()


class Leadership:
    """See the module. `configured` are host:port."""

    def __init__(self, configured: Sequence[str], cluster_id: int) -> None:
        self._configured = tuple(dict.fromkeys(configured))
        self._cluster_id = cluster_id
        self._foreign: set[str] = set()
        self._failed: list[str] = []  # the latest last
        self.members: tuple[PdMember, ...] = ()
        self.leader: PdMember | None = None

    def take(self, answers: Sequence[MembersAnswer]) -> bool:
        """Learn from the answers of one round; whether there is another leader than before.

        No answer teaches nothing. Raises `Conflict` if the configured addresses that answer, and all others
        that do, have become another cluster's.
        """
        own = [answer for answer in answers if answer.cluster_id == self._cluster_id]
        foreign = [answer for answer in answers if answer.cluster_id != self._cluster_id]
        self._foreign -= {answer.address for answer in own}
        self._foreign |= {answer.address for answer in foreign}
        if not own:
            for answer in foreign:
                if answer.address in self._configured:
                    raise Conflict(
                        f"PD at {answer.address} belongs to cluster {answer.cluster_id},"
                        f" not {self._cluster_id}",
                        hint="check the address; a rebuilt cluster is a new one",
                    )
            return False
        chosen = self._chosen(own)
        leader = chosen.leader
        self.members = tuple(replace(member, is_leader=member == leader) for member in chosen.members)
        before = self.leader.member_id if self.leader else 0
        self.leader = leader
        if leader is None or leader.member_id == before:
            return False
        self._failed.clear()
        return True

    def _chosen(self, own: list[MembersAnswer]) -> MembersAnswer:
        """The answer with the leader that most name. Of equals one that is news: a member cut off from the
        others continues to name the old one."""
        votes = Counter(answer.leader.member_id for answer in own if answer.leader)
        before = self.leader.member_id if self.leader else 0

        def weight(answer: MembersAnswer) -> tuple[int, bool]:
            if answer.leader is None:
                return 0, False
            return votes[answer.leader.member_id], answer.leader.member_id != before

        return max(own, key=weight)  # the first of equals

    def everyone(self) -> tuple[str, ...]:
        """Whom to ask for members: the configured addresses, then all that members advertise."""
        advertised = [address for member in self.members for address in member.addresses]
        return tuple(dict.fromkeys((*self._configured, *advertised)))

    def order(self) -> tuple[str, ...]:
        """Where to send what is for the leader, best first; empty while there is none.

        Its own addresses, then configured ones that no other member calls its own: each may be the leader
        under another name. Those that failed come last, the latest of them at the very end.
        """
        if self.leader is None:
            return ()
        own = self.leader.addresses
        others = {
            address for member in self.members if member.member_id != self.leader.member_id
            for address in member.addresses
        }  # fmt: skip
        aliases = [address for address in self._configured if address not in others]
        usable = [address for address in dict.fromkeys((*own, *aliases)) if address not in self._foreign]
        return tuple(sorted(usable, key=lambda address: self._rank(address)))

    def _rank(self, address: str) -> int:
        return self._failed.index(address) if address in self._failed else -1

    def is_foreign(self, address: str) -> bool:
        return address in self._foreign

    def failed(self, address: str) -> None:
        """A call for the leader failed there."""
        self.worked(address)
        self._failed.append(address)

    def worked(self, address: str) -> None:
        """A call for the leader worked there."""
        if address in self._failed:
            self._failed.remove(address)
