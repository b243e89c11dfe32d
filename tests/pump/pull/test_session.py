"""Pull session: pages become messages, within credit."""

from __future__ import annotations

import pytest

from pump.log.delivery import Delivery, Page
from pump.pull.session import FIRST_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX, Message, PullSession
from tidb_binlog import binlog


def deliveries(*commits: int, size: int = 10) -> list[Delivery]:
    return [Delivery(commit_ts, commit_ts - 1, bytes(size)) for commit_ts in commits]


class TestPullSession:
    def test_page_becomes_one_message_with_its_watermark(self) -> None:
        session = PullSession(5)
        session.request(100, 0)
        assert session.page(Page(deliveries(7, 9), 12)) == Message(deliveries(7, 9), 20, 12)
        assert session.position == 12
        assert session.credit == 80

    def test_nothing_is_said_without_need(self) -> None:
        session = PullSession(5)
        session.request(100, 0)
        assert session.page(Page([], 12)) is None
        assert session.page(Page([Delivery(20, 20, binlog.fake(20))], 30)) is None
        assert session.position == 30

    def test_awaited_watermark_is_told_once(self) -> None:
        session = PullSession(5)
        session.request(0, 10)
        assert session.reached() is None
        assert session.waits_for == 10
        session.request(100, 0)
        assert session.page(Page([], 12)) == Message([], 0, 12)
        assert session.reached() is None
        session.request(0, 11)
        assert session.reached() == Message([], 0, 12)
        session.request(0, 15)
        assert session.page(Page(deliveries(14), 16)) == Message(deliveries(14), 10, 16)
        assert session.reached() is None

    def test_what_was_reached_exactly_or_told_by_a_sign_of_life_is_told_no_more(self) -> None:
        session = PullSession(5)
        session.request(100, 16, 40)
        assert session.page(Page(deliveries(14), 16)) == Message(deliveries(14), 10, 16)
        assert (session.waits_for, session.reached()) == (0, None)
        session.position = 20
        assert session.sign_of_life(7) == Message([], 0, 20), "nothing is waited for"
        assert session.reached() is None
        session.request(0, 30)
        assert session.sign_of_life(7) == Message([], 0, 20, 7)

    def test_each_rise_is_told_until_what_was_given_is_reached(self) -> None:
        session = PullSession(5)
        session.request(100, 0, 10)
        assert session.reached() is None
        assert session.page(Page([], 7)) == Message([], 0, 7)
        assert session.page(Page([], 7)) is None
        assert session.page(Page(deliveries(8), 9)) == Message(deliveries(8), 10, 9)
        assert session.reached() is None, "told with the payload"
        assert session.page(Page([], 12)) == Message([], 0, 12)
        assert session.page(Page([], 13)) is None
        session.request(0, 0, 13)
        assert session.reached() == Message([], 0, 13)
        assert session.reached() is None

    def test_time_marks_of_old_pumps_are_no_payloads(self) -> None:
        session = PullSession(0)
        session.request(100, 0)
        page = Page([*deliveries(3), Delivery(4, 4, binlog.fake(4))], 4)
        assert session.page(page) == Message(deliveries(3), 10, 4)

    def test_credit_bounds_pages_and_one_large_transaction_passes(self) -> None:
        session = PullSession(0)
        session.request(-1, 0)
        assert session.page_bytes == 0
        session.request(50, 0)
        assert session.page_bytes == 50
        session.page(Page(deliveries(3, size=500), 3))
        assert session.credit == -450
        assert session.page_bytes == 0
        session.request(451, 0)
        assert session.page_bytes == 1
        session.request(10 << 20, 0)
        assert session.page_bytes < MESSAGE_BYTES_MAX
        for ts in range(10, 20):
            session.page(Page(deliveries(ts), ts))
        assert session.page_bytes == MESSAGE_BYTES_MAX

    def test_the_first_message_is_small_and_later_ones_grow(self) -> None:
        session = PullSession(0)
        session.request(10 << 20, 0)
        sizes = []
        for ts in range(2, 9):
            sizes.append(session.page_bytes)
            session.page(Page(deliveries(ts), ts))
        assert sizes[0] == FIRST_MESSAGE_BYTES_MAX <= 16 << 10
        assert sizes == sorted(sizes)
        assert sizes[-1] == MESSAGE_BYTES_MAX

    def test_a_commit_at_or_below_the_watermark_that_was_sent_is_caught(self) -> None:
        session = PullSession(10)
        session.request(100, 0)
        with pytest.raises(AssertionError, match="at or below the watermark that was sent"):
            session.page(Page(deliveries(10), 11))

    def test_a_watermark_never_falls(self) -> None:
        session = PullSession(10)
        with pytest.raises(AssertionError):
            session.page(Page([], 9))
