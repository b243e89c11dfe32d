"""A lane without a server: what it does about rows that are refused, and whom it asks."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from drainer.mysql.errors import NoSuchTable, StatementRefused
from drainer.mysql.refusal import CORRECT, Refusal, RowsRefused
from drainer.mysql.rows.change import TableTarget
from drainer.sink.mysql import lane as lane_module
from tests.drainer.sink.mysql.lane_alone import (
    BATCH,
    DUPLICATE,
    KEYED,
    LOST,
    NUMBER,
    UNIQUE,
    Server,
    World,
    begun,
    made,
)
from tests.drainer.sink.mysql.lane_alone import server as server
from tidb_binlog.errors import Conflict, Corruption, DownstreamError, Unavailable

# -- refusals ---------------------------------------------------------------------------------


def test_what_is_refused_names_rows_and_table(server: Server) -> None:
    world = World(server)
    server.fails["REPLACE"] = [StatementRefused(1264, "Out of range value for column 'v'")]
    world.offer(KEYED, 1)
    world.offer(KEYED, 2)
    world.run()
    assert not isinstance(world.error, RowsRefused)
    assert world.error.message == (
        "applying rows of transactions with commit_ts 10 to 20 to d.t (key id): downstream says"
        " 1264: Out of range value for column 'v'; the row ..."
    )
    assert "correct the downstream and start" in world.error.hint
    assert server.noted == []


def test_of_a_table_that_may_wait_the_error_says_so(server: Server) -> None:
    world = World(server, rows_may_wait=True)
    server.fails["INSERT"] = [DUPLICATE]
    world.offer(UNIQUE, 5)
    world.run()
    error = world.error
    assert isinstance(error, RowsRefused)
    assert (error.lane, error.hint) == (NUMBER, CORRECT)
    assert (error.refusal.name, error.refusal.first_ts, error.refusal.last_ts) == ("i2", 10, 10)
    assert "Duplicate entry '...' for key 'i2'" in error.message


def test_values_are_shown_where_that_is_allowed(server: Server) -> None:
    world = World(server, log_values=True)
    server.fails["INSERT"] = [DUPLICATE]
    world.offer(UNIQUE, 5)
    world.run()
    assert "Duplicate entry '5' for key 'i2'; the row 5" in world.error.message


def test_what_is_not_the_tables_is_no_refusal_of_rows(server: Server) -> None:
    world = World(server, rows_may_wait=True)
    server.fails["advance"] = [StatementRefused(1142, "UPDATE command denied")]
    world.offer(KEYED, 1)
    world.run()
    assert not isinstance(world.error, RowsRefused)
    assert "to the lane's position: downstream says 1142" in world.error.message


def test_what_a_session_is_refused_is_no_matter_of_the_table_that_ran_before(server: Server) -> None:
    world = World(server, rows_may_wait=True)
    server.fails["REPLACE"] = [LOST]
    denied = StatementRefused(1142, "UPDATE command denied")
    server.before["REPLACE"] = lambda: server.fails.__setitem__("claim", [denied])
    world.offer(KEYED, 1)
    world.run()
    assert not isinstance(world.error, RowsRefused)
    assert "to the lane's position: downstream says 1142" in world.error.message


@pytest.mark.parametrize("found", [Conflict("it went back in time"), LOST, Unavailable("away"), None])
def test_a_server_that_went_back_in_time_refuses_for_that_reason(
    server: Server, found: BaseException | None
) -> None:
    world = World(server)
    server.fails = {"REPLACE": [StatementRefused(1264, "no")]}

    def refused() -> None:
        if found is not None:
            server.fails["claim"] = [found, found]

    server.before["REPLACE"] = refused
    world.offer(KEYED, 1)
    world.run()
    assert ("back in time" in str(world.error)) == isinstance(found, Conflict)


def test_a_session_of_before_does_not_say_whether_it_went_back(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfit(*of: Any, **more: Any) -> Any:
        raise DownstreamError("no value for it")

    def described(*of: Any, **more: Any) -> str:
        server.fails["claim"] = [Conflict("it went back in time")]
        return ""

    monkeypatch.setattr(lane_module, "statements", unfit)
    monkeypatch.setattr(lane_module.refused_rows, "described", described)
    world = World(server)
    world.offer(KEYED, 1)
    world.run()
    assert isinstance(world.error, Conflict)


def test_what_is_no_error_of_the_downstream_ends_it_as_it_is(server: Server) -> None:
    world = World(server)
    server.fails["COMMIT"] = [RuntimeError("unexpected")]
    world.offer(KEYED, 1)
    assert world.run() == begun(*BATCH)
    ((_, error),) = world.told
    assert isinstance(error, RuntimeError)


def test_a_damaged_row_names_its_transaction(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(changes: Any) -> Any:
        raise Corruption("a row is damaged", hint="look")

    monkeypatch.setattr(lane_module, "fold", damaged)
    world = World(server)
    world.offer(KEYED, 1)
    world.run()
    assert isinstance(world.error, Corruption)
    assert (world.error.message, world.error.hint) == (
        "transaction with commit_ts 10: a row is damaged",
        "look",
    )


def test_a_value_that_the_table_cannot_have_is_refused_with_its_table(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfit(*of: Any, **more: Any) -> Any:
        raise DownstreamError("no value for it", hint="look")

    monkeypatch.setattr(lane_module, "statements", unfit)
    world = World(server, rows_may_wait=True)
    world.offer(KEYED, 1)
    world.run()
    assert isinstance(world.error, RowsRefused)
    assert (world.error.message, world.error.hint) == (
        "transaction with commit_ts 10: no value for it; the row ...",
        "look",
    )
    assert world.error.refusal.table.label == "d.t"


# -- COMMIT that refuses ----------------------------------------------------------------------


def test_what_commit_refuses_is_said_by_its_statement_the_next_time(server: Server) -> None:
    """And the session is not used again, as other batches need not be checked so."""
    world = World(server, batch_rows=1)
    server.fails["COMMIT"] = [DUPLICATE]
    world.offer(UNIQUE, 5)
    world.offer(UNIQUE, 6)
    rows = ["INSERT", ("advance", 10), "COMMIT"]
    checks = ("SET", b"SET SESSION tidb_constraint_check_in_place=1")
    assert world.run() == begun(
        *rows,
        "close",
        "open",
        "position",
        checks,
        *rows,
        "close",
        "open",
        "INSERT",
        ("advance", 20),
        "COMMIT",
    )
    assert len(world.told) == 2


def test_commit_that_refuses_it_once_more_is_final(server: Server) -> None:
    world = World(server)
    server.fails["COMMIT"] = [DUPLICATE, DUPLICATE]
    world.offer(UNIQUE, 5)
    world.run()
    assert "Duplicate entry" in world.error.message


# -- tables that were changed downstream ------------------------------------------------------


def fresh_table(
    monkeypatch: pytest.MonkeyPatch, server: Server, *, there: bool = True, other: bool = True
) -> list[TableTarget]:
    """What is read of the table, and what rows are for then: of another name, which the server notes."""
    given: list[TableTarget] = []

    def read(connection: Any, *name: str) -> Any:
        server.does("read", *name)
        return object() if there else None

    def refresh(target: TableTarget, found: Any, *, sync_mode: int) -> TableTarget | None:
        given.append(target)
        return replace(target, name=b"`d`.`fresh`") if other else None

    monkeypatch.setattr(lane_module, "read_table", read)
    monkeypatch.setattr(lane_module, "refreshed", refresh)
    return given


@pytest.mark.parametrize("number", [1054, 1136, 1364, 1906, 3105, 1146])
def test_a_table_that_was_changed_is_read_again_for_all_that_comes(
    server: Server, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fresh_table(monkeypatch, server)
    into = made(KEYED)
    sent: list[bytes] = []
    run = server.run
    monkeypatch.setattr(server, "run", lambda sql: (sent.append(sql), run(sql))[1])
    world = World(server, batch_rows=2)
    error = NoSuchTable if number == 1146 else StatementRefused
    server.fails["REPLACE"] = [error(number, "another shape")]
    world.offer(KEYED, 1, into=into)
    world.offer(KEYED, 2, into=into)
    world.offer(KEYED, 3, into=into)
    said = world.run()
    assert said == begun(
        "REPLACE",
        ("read", "d", "t"),
        "REPLACE",
        ("advance", 20),
        "COMMIT",
        "REPLACE",
        ("advance", 30),
        "COMMIT",
    )
    assert [b"fresh" in sql for sql in sent] == [False, True, True]
    assert (world.changed, len(world.told)) == (1, 2)


def test_a_table_that_is_as_it_was_is_not_why_it_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_table(monkeypatch, server, other=False)
    world = World(server)
    server.fails["REPLACE"] = [StatementRefused(1054, "Unknown column")]
    world.offer(KEYED, 1)
    world.run()
    assert "1054: Unknown column" in world.error.message
    assert world.changed == 0


def test_a_table_that_is_gone_is_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_table(monkeypatch, server, there=False)
    world = World(server, rows_may_wait=True)
    server.fails["REPLACE"] = [NoSuchTable(1146, "no such table")]
    world.offer(KEYED, 1)
    world.run()
    assert isinstance(world.error, RowsRefused)
    assert "table d.t does not exist downstream" in world.error.message
    assert "binlogctl load" in world.error.hint


@pytest.mark.parametrize(("error", "passes"), [(LOST, True), (StatementRefused(1142, "denied"), False)])
def test_a_table_that_cannot_be_read_now_is_looked_at_later(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: BaseException, passes: bool
) -> None:
    fresh_table(monkeypatch, server)
    world = World(server)
    server.fails = {"REPLACE": [StatementRefused(1054, "no")], "read": [error]}
    world.offer(KEYED, 1)
    said = world.run()
    again = begun("REPLACE", ("read", "d", "t"), "close", "open", *BATCH)
    assert (said == again) is passes, "nothing is known of a session after an error"
    assert (world.told == [(NUMBER, 10, 1)]) is passes
    assert world.changed == 0


def test_another_refusal_does_not_read_the_table(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_table(monkeypatch, server)
    world = World(server)
    server.fails["REPLACE"] = [StatementRefused(1264, "no")]
    world.offer(KEYED, 1)
    assert not [said for said in world.run() if said[0] == "read"]


# -- asking the upstream ----------------------------------------------------------------------


class Upstream:
    """What it says of a constraint: whether it has given it up, or an error."""

    def __init__(self, server: Server, *answers: bool | DownstreamError) -> None:
        self.server, self.answers = server, list(answers)
        self.asked: list[Refusal] = []

    def __call__(self, refusal: Refusal) -> Future[bool]:
        self.server.said.append("ask")
        self.asked.append(refusal)
        future: Future[bool] = Future()
        answer = self.answers.pop(0)
        if isinstance(answer, DownstreamError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


def test_a_key_that_the_upstream_has_given_up_is_asked_about_once(server: Server) -> None:
    upstream = Upstream(server, True)
    world = World(server, on_refused=upstream)
    server.fails["INSERT"] = [DUPLICATE]
    world.offer(UNIQUE, 5)
    assert world.run() == begun("INSERT", "ROLLBACK", "ask", "INSERT", ("advance", 10), "COMMIT")
    (asked,) = upstream.asked
    assert (asked.name, asked.is_check, asked.first_ts, asked.last_ts, asked.number) == (
        "i2",
        False,
        10,
        10,
        1062,
    )
    again = World(server, on_refused=Upstream(server, True))
    server.fails["INSERT"] = [DUPLICATE, DUPLICATE]
    again.offer(UNIQUE, 5)
    again.run()
    assert "Duplicate entry" in again.error.message


@pytest.mark.parametrize("answer", [False, DownstreamError("it was given up, but", hint="drop it there")])
def test_a_key_that_the_upstream_has_is_a_refusal(server: Server, answer: bool | DownstreamError) -> None:
    world = World(server, on_refused=Upstream(server, answer), rows_may_wait=True)
    server.fails["INSERT"] = [DUPLICATE]
    world.offer(UNIQUE, 5)
    world.run()
    error = world.error
    assert isinstance(error, RowsRefused)
    assert error.refusal.name == "i2"
    assert error.hint == (CORRECT if answer is False else "drop it there")
    assert ("it was given up, but" in error.message) is (answer is not False)


def test_what_is_no_constraint_is_not_asked_about(server: Server) -> None:
    upstream = Upstream(server)
    world = World(server, on_refused=upstream)
    server.fails["REPLACE"] = [StatementRefused(1264, "no")]
    world.offer(KEYED, 1)
    world.run()
    assert upstream.asked == []


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("partial", [False, True])
def test_rows_that_took_the_place_of_others_are_asked_about_once(
    server: Server, answer: bool, partial: bool
) -> None:
    """The upstream may have given up the key that made them two. Filtered events leave such rows anyway."""
    upstream = Upstream(server, answer)
    world = World(server, on_refused=upstream)
    server.affects["REPLACE"] = [5, 5]
    world.offer(KEYED, 1, into=made(KEYED, partial=partial))
    said = world.run()
    rows = ["REPLACE"] if partial else ["REPLACE", "ROLLBACK", "ask", "REPLACE"]
    assert said == begun(*rows, *BATCH[1:])
    assert [(one.name, one.is_check, one.first_ts, one.last_ts) for one in upstream.asked] == [
        ("", False, 10, 10)
    ] * (not partial)


def test_rows_that_took_the_place_of_others_wait_if_the_upstream_says_so(server: Server) -> None:
    world = World(server, on_refused=Upstream(server, DownstreamError("of the key")), rows_may_wait=True)
    server.affects["REPLACE"] = [5]
    world.offer(KEYED, 1)
    world.run()
    assert isinstance(world.error, RowsRefused)
    assert world.error.refusal.table is made(KEYED)


@pytest.mark.parametrize("partial", [False, True])
def test_rows_of_a_batch_that_took_the_place_of_each_other_are_asked_about_before(
    server: Server, partial: bool
) -> None:
    upstream = Upstream(server, True)
    world = World(server, on_refused=upstream)
    target = made(KEYED, partial=partial)
    world.offer(KEYED, 1, into=target)
    world.offer(KEYED, 1, into=target)
    ask = [] if partial else ["ROLLBACK", "ask"]
    assert world.run() == begun(*ask, "REPLACE", ("advance", 20), "COMMIT")
    alone = World(server)
    alone.offer(KEYED, 1, into=target)
    alone.offer(KEYED, 1, into=target)
    server.said.clear()
    assert alone.run() == begun("REPLACE", ("advance", 20), "COMMIT")
