"""Routing: legal names, no topic that two tables share unseen, a key's changes in one partition."""

from __future__ import annotations

import re
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.sink.kafka.routing import FIRST, KEY, NAME_MAX, TABLE, TS, Topics, partition_of
from tidb_binlog.errors import DownstreamError

LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_topic_s_name_is_legal_whatever_a_table_is_called(schema: str, table: str) -> None:
    for template in ("{schema}_{table}", "{table}", "{schema}"):
        name = Topics(template).of(schema, table)
        assert LEGAL.fullmatch(name)
        assert name not in (".", "..")


def test_names_that_are_legal_stay() -> None:
    topics = Topics("db.{schema}.{table}-v1")
    assert topics.of("shop", "Order_1") == "db.shop.Order_1-v1"
    assert topics.only is None


def test_a_template_without_places_is_one_topic() -> None:
    topics = Topics("changes")
    assert topics.only == "changes"
    assert topics.of("a", "b") == topics.of("c", "d") == "changes"


@pytest.mark.parametrize(
    ("template", "first", "second", "named"),
    [
        ("{schema}_{table}", ("a_b", "c"), ("a", "b_c"), "`a_b`.`c` and `a`.`b_c`"),
        ("{table}", ("a", "é"), ("a", "è"), "`é` and `è`"),
        ("{table}", ("a", "x" * 260), ("a", "x" * 261), f"both go to topic {'x' * NAME_MAX}"),
    ],
)
def test_two_tables_that_would_share_a_topic_are_named(
    template: str, first: tuple[str, str], second: tuple[str, str], named: str
) -> None:
    topics = Topics(template)
    topics.of(*first)
    with pytest.raises(DownstreamError, match=named) as refused:
        topics.of(*second)
    assert "syncer.to.topic" in refused.value.hint
    assert topics.of(*first)


def test_tables_that_a_template_joins_share_their_topic() -> None:
    assert Topics("{schema}").of("a", "b") == "a"
    topics = Topics("all-{table}")
    assert topics.of("shard1", "orders") == topics.of("shard2", "orders") == "all-orders"


def test_a_key_decides_as_librdkafka_s_consistent_partitioner() -> None:
    keys = [b"%d" % number for number in range(1000)]
    found = [partition_of(KEY, 7, "a", "b", key, 1) for key in keys]
    assert found == [zlib.crc32(key) % 7 for key in keys]
    assert set(found) == set(range(7))


def test_what_has_no_key_goes_where_its_table_goes() -> None:
    table = partition_of(TABLE, 7, "a", "b", b"any", 1)
    assert all(partition_of(by, 7, "a", "b", None, ts) == table for by in (KEY, TABLE) for ts in range(9))
    assert len({partition_of(TABLE, 7, "a", f"t{number}", None, 1) for number in range(99)}) == 7


def test_a_commit_timestamp_decides_for_a_whole_transaction() -> None:
    found = {ts: partition_of(TS, 5, "a", "b", b"k", ts << 18) for ts in range(200)}
    assert found == {ts: partition_of(TS, 5, "x", "y", None, ts << 18) for ts in range(200)}
    assert set(found.values()) == set(range(5))


def test_without_a_rule_all_is_in_one_partition() -> None:
    assert {partition_of(FIRST, 9, "a", "b", b"%d" % one, one) for one in range(99)} == {0}
