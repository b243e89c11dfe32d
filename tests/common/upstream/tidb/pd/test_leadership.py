from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from tidb_binlog.errors import Conflict, Unavailable
from tidb_binlog.upstream.tidb.pd.leadership import (
    Leadership,
    MembersAnswer,
    PdMember,
    address_of,
    answer_of_message,
    common_cluster_id,
)
from tidb_binlog.wire import pdpb_pb2

ID = 7_000_000_000_000_000_001
STRANGE = ID + 1


def member(number: int, leader: int | None = None, *urls: str) -> PdMember:
    urls = urls or (f"http://pd-{number}:2379",)
    return PdMember(f"pd-{number}", number, urls, "7.0.0", number == leader)


def answer(
    address: str, leader: int | None, numbers: Sequence[int] = (1, 2, 3), cluster_id: int = ID
) -> MembersAnswer:
    return MembersAnswer(address, cluster_id, tuple(member(number, leader) for number in numbers))


def test_a_message_becomes_an_answer() -> None:
    reply = pdpb_pb2.GetMembersResponse(
        members=[
            pdpb_pb2.Member(name="a", member_id=1, client_urls=["http://a:2379"], binary_version="v7.0.0"),
            pdpb_pb2.Member(name="b", member_id=2**64 - 1, client_urls=["https://b:2379", "http://[::1]:1"]),
        ]
    )
    reply.header.cluster_id = ID
    told = answer_of_message("x:1", reply)
    assert (told.address, told.cluster_id, told.leader) == ("x:1", ID, None)
    assert told.members == (
        PdMember("a", 1, ("http://a:2379",), "7.0.0", False),
        PdMember("b", 2**64 - 1, ("https://b:2379", "http://[::1]:1"), "", False),
    )
    assert told.members[1].addresses == ("b:2379", "[::1]:1")
    reply.leader.member_id = 2**64 - 1
    leader = answer_of_message("x:1", reply).leader
    assert leader is not None
    assert leader.name == "b"


def test_a_leader_that_is_not_in_the_list_is_a_member() -> None:
    reply = pdpb_pb2.GetMembersResponse(leader=pdpb_pb2.Member(name="new", member_id=9))
    reply.header.cluster_id = ID
    assert answer_of_message("x:1", reply).members == (PdMember("new", 9, (), "", True),)


def test_a_reply_without_a_cluster_is_no_answer() -> None:
    with pytest.raises(Unavailable, match="x:1 does not know its cluster id"):
        answer_of_message("x:1", pdpb_pb2.GetMembersResponse())
    reply = pdpb_pb2.GetMembersResponse()
    reply.header.cluster_id = ID
    reply.header.error.type = pdpb_pb2.UNKNOWN
    reply.header.error.message = "server not started"
    with pytest.raises(Unavailable, match="x:1 cannot tell the members: UNKNOWN: server not started"):
        answer_of_message("x:1", reply)


@pytest.mark.parametrize(
    ("url", "address"),
    [("http://pd:2379", "pd:2379"), ("https://pd:2379/", "pd:2379"), ("pd:2379", "pd:2379"), ("", "")],
)
def test_addresses_of_urls(url: str, address: str) -> None:
    assert address_of(url) == address


def test_different_clusters_are_told_with_their_addresses() -> None:
    assert common_cluster_id([answer("a:1", 1), answer("b:1", None)]) == ID
    with pytest.raises(Conflict, match=f"a:1 {ID}, b:1 {STRANGE}"):
        common_cluster_id([answer("a:1", 1), answer("b:1", 1, cluster_id=STRANGE)])


SILENT, FOREIGN = "silent", "foreign"


def expected_leader(told: Sequence[object], before: int | None) -> int | None:
    """By the words of the reference: whom most name; of equals the new one, then the first named."""
    own = [one for one in told if one not in (SILENT, FOREIGN)]
    if not own:
        return before
    named = [one for one in own if one is not None]
    if not named:
        return None
    most = max(named.count(one) for one in named)
    equals = [one for one in named if named.count(one) == most]
    fresh = [one for one in equals if one != before]
    return (fresh or equals)[0]  # type: ignore[return-value]


def test_the_leader_after_every_round_of_answers() -> None:
    """Three members, each silent, foreign, without a leader or naming one of three; every leader before."""
    choices = (SILENT, FOREIGN, None, 1, 2, 3)
    for before, told in product((None, 1, 2, 3), product(choices, repeat=3)):
        leadership = Leadership(("outside:1",), ID)
        leadership.take([answer("outside:1", before)])
        answers = [
            answer(
                f"pd-{number}:2379",
                None if one == FOREIGN else one,
                cluster_id=STRANGE if one == FOREIGN else ID,
            )  # type: ignore[arg-type]
            for number, one in enumerate(told, 1)
            if one != SILENT
        ]
        expected = expected_leader(told, before)
        assert leadership.take(answers) == (expected is not None and expected != before), (before, told)
        found = leadership.leader.member_id if leadership.leader else None
        assert found == expected, (before, told)
        assert [one.is_leader for one in leadership.members] == [expected == n for n in (1, 2, 3)]


def test_a_configured_address_of_another_cluster_is_a_conflict_unless_the_cluster_still_answers() -> None:
    leadership = Leadership(("a:1", "b:1"), ID)
    leadership.take([answer("a:1", 1), answer("b:1", 1)])
    leadership.take([answer("a:1", 1), answer("b:1", 1, cluster_id=STRANGE)])
    assert leadership.is_foreign("b:1")
    assert "b:1" not in leadership.order()
    with pytest.raises(Conflict, match=f"b:1 belongs to cluster {STRANGE}, not {ID}"):
        leadership.take([answer("b:1", 1, cluster_id=STRANGE)])
    assert not leadership.take([answer("pd-2:2379", 2, cluster_id=STRANGE)])  # a name that means another here
    leadership.take([answer("b:1", 1)])
    assert not leadership.is_foreign("b:1")


def test_the_leader_is_found_in_every_world() -> None:
    """Up to three members; each may be reached or not as it advertises, and is configured by its own address,
    by another name, by both or not at all. The leader is found with each usable address tried once, never by
    an address that a follower calls its own, and found at once the next time."""
    ways = tuple(product((True, False), (True, False), (True, False)))  # reachable, own configured, alias
    for count in (1, 2, 3):
        for leader, world in product(range(1, count + 1), product(ways, repeat=count)):
            numbers = range(1, count + 1)
            configured = [
                address
                for number, (_, own, alias) in zip(numbers, world, strict=True)
                for address, named in ((f"pd-{number}:2379", own), (f"alias-{number}:1", alias))
                if named
            ]
            reachable, _, aliased = world[leader - 1]
            works = {f"alias-{leader}:1"} | ({f"pd-{leader}:2379"} if reachable else set())
            leadership = Leadership(configured, ID)
            leadership.take([answer("x:1", leader, numbers)])
            tried: list[str] = []
            while (address := next((a for a in leadership.order() if a not in tried), None)) is not None:
                tried.append(address)
                if address in works:
                    leadership.worked(address)
                    break
                leadership.failed(address)
            followers = {f"pd-{number}:2379" for number in numbers if number != leader}
            assert not followers & set(tried)
            if reachable or aliased:
                assert tried[-1] in works
                assert leadership.order()[0] == tried[-1]
            assert set(configured) <= set(leadership.everyone())


def test_failures_are_forgotten_with_the_leader_they_were_made_under() -> None:
    leadership = Leadership(("alias:1",), ID)
    leadership.take([answer("alias:1", 1)])
    leadership.failed("pd-1:2379")
    assert leadership.order() == ("alias:1", "pd-1:2379")
    leadership.failed("alias:1")
    assert leadership.order() == ("pd-1:2379", "alias:1")
    leadership.failed("pd-1:2379")
    assert leadership.order() == ("alias:1", "pd-1:2379")
    assert leadership.take([answer("alias:1", 2)])
    assert leadership.order() == ("pd-2:2379", "alias:1")
    assert leadership.take([answer("alias:1", 1)])
    assert leadership.order() == ("pd-1:2379", "alias:1")


def test_during_an_election_there_is_nobody_to_call() -> None:
    leadership = Leadership(("alias:1",), ID)
    leadership.take([answer("alias:1", 1)])
    leadership.take([answer("alias:1", None)])
    assert leadership.order() == ()
    assert leadership.everyone() == ("alias:1", "pd-1:2379", "pd-2:2379", "pd-3:2379")
