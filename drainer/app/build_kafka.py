"""Build of a Kafka sink: from the configuration to a drainer that sends messages.

Order   brokers are found and waited for; that this start knows where to begin; an older producer is fenced
        off where there are transactions; then the savepoint says where the stream continues, and what
        partitions have says what is not sent again

Tests  tests/drainer/app/test_build_kafka.py, tests/drainer/sink/kafka/test_kafka_process.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from drainer.app.build import BuildContext
from drainer.app.savepoint_start import Place, SavepointStart, rehearse_without_position
from drainer.checkpoint.savepoint import Savepoint
from drainer.config.options import DrainerConfig
from drainer.config.sink_options import MESSAGE_BYTES_MAX, OBINLOG
from drainer.ddl.derive.values import Route
from drainer.ddl.policy import Policy
from drainer.formats.messages.message import FormatOptions, MessageFormat, open_format
from drainer.sink.background import Background
from drainer.sink.kafka.claim_store import ClaimStore
from drainer.sink.kafka.client import Answered, Client
from drainer.sink.kafka.destinations import Destinations, PartitionCounts
from drainer.sink.kafka.feed import Feed, ObinlogFeed
from drainer.sink.kafka.kafka_sink import KafkaSink
from drainer.sink.kafka.messages import ObinlogMessages
from drainer.sink.kafka.routing import TABLE, Topics
from drainer.sink.kafka.row_feed import RowFeed
from drainer.sink.kafka.schema_registry import SchemaRegistry
from drainer.sink.kafka.settings import ClientSettings, Sasl, SinkSettings, Tls
from drainer.sink.kafka.window import Mark
from drainer.sink.runner import Runner
from drainer.sink.savepoint_keeper import SavepointKeeper
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.kafka_assembly")


async def build(context: BuildContext) -> Runner[KafkaSink]:
    settings, upstream, operating = context.settings, context.upstream, context.operating
    begin = SavepointStart(context)
    stored = await begin.stored()
    line = Line()
    topic = topic_of(settings, upstream.cluster_id)
    client = await asyncio.to_thread(
        Client, client_settings(settings, upstream.cluster_id), line.answered, line.trouble
    )
    context.ends.push_async_callback(asyncio.to_thread, client.close, wait_s=0.0)
    only = Topics(topic).only
    await operating.wait_for(lambda: asyncio.to_thread(client.meet, only))
    first = await begin.first_rows(stored)
    if settings.transactions:
        await operating.wait_for(lambda: asyncio.to_thread(client.begin_producing))
    place = await begin.place(
        lambda initial_ts: (
            Place(first.ts - 1)
            if first is not None
            else Place(stored.commit_ts, stored.schema_version)
            if stored is not None and stored.commit_ts
            else Place(initial_ts)
        ),
        "the savepoint",
        "check pd-urls; after restoring the upstream begin with a new topic and a new data-dir",
    )
    past_ts = await operating.wait_for(upstream.oracle.timestamp)
    logger.info("Kafka", servers=settings.brokers(), topic=topic, commit_ts=place.commit_ts)
    translator = await begin.translator(place)
    sink = assembled(
        Mark(*place),
        client,
        line,
        begin.savepoint,
        translator.route,
        begin.policy,
        SystemClock(),
        sink_settings(settings, topic),
        data_dir=settings.data_dir,
        form=form_of(settings, topic),
        claim_check=settings.claim_check,
        past_ts=past_ts,
    )
    if only:
        await sink.open(only)
    return begin.runner(sink, translator)


class Line:
    """From the client, which is there first, to the sink."""

    def __init__(self) -> None:
        self.sink: KafkaSink | None = None

    def answered(self, answers: Sequence[Answered]) -> None:
        if self.sink is not None:
            self.sink.answered(answers)

    def trouble(self, text: str, error: BinlogError | None) -> None:
        if self.sink is not None:
            self.sink.trouble(text, error)


def assembled(
    start: Mark,
    client: Client,
    line: Line,
    savepoint: Savepoint,
    route: Route,
    policy: Policy,
    clock: Clock,
    settings: SinkSettings,
    *,
    data_dir: str,
    form: MessageFormat | None = None,
    claim_check: str = "",
    past_ts: Ts,
) -> KafkaSink:
    """A sink of its parts; `form` of messages, None for obinlog. Raises `ConfigError`."""
    topics = Topics(settings.topic)
    reports: list[Callable[[str], None]] = []
    destinations = Destinations(
        client,
        topics,
        PartitionCounts(data_dir),
        settings.partition,
        limit=settings.message_bytes,
        past_ts=past_ts,
        insists=settings.exactly_once,
        report=lambda text: reports[0](text),
    )
    claims = ClaimStore(claim_check) if claim_check else None
    feed: Feed
    if form is None:
        by_table = topics.only is None or settings.partition == TABLE
        feed = ObinlogFeed(
            ObinlogMessages(
                by_table=by_table,
                headers=settings.headers,
                oversize=settings.oversize,
            ),
            destinations,
            claims,
        )
    else:
        feed = RowFeed(form, destinations, claims, oversize=settings.oversize)
    keeper = SavepointKeeper(savepoint, start.commit_ts, clock)
    sink = KafkaSink(start, client, destinations, feed, keeper, route, policy, clock, settings, Background())
    reports.append(sink.waits)
    line.sink = sink
    return sink


def topic_of(settings: DrainerConfig, cluster_id: int) -> str:
    """The template of topics."""
    return settings.topic or settings.topic_name or f"{cluster_id}_obinlog"


def form_of(settings: DrainerConfig, topic: str) -> MessageFormat | None:
    """None: obinlog. Raises `ConfigError` where an extra is missing."""
    if settings.format == OBINLOG:
        return None
    return open_format(
        settings.format,
        FormatOptions(
            whole_transactions=settings.messages == "transaction",
            with_schema=settings.message_schema,
            registry=SchemaRegistry(settings.schema_registry, settings.downstream_tls)
            if settings.schema_registry
            else None,
            topic=Topics(topic).of,
        ),
    )


def client_settings(settings: DrainerConfig, cluster_id: int) -> ClientSettings:
    tls = settings.downstream_tls
    sasl = None
    if settings.sasl_mechanism:
        _, _, user, password = settings.downstream
        sasl = Sasl(settings.sasl_mechanism, user, password)
    return ClientSettings(
        settings.brokers(),
        settings.kafka_client_id,
        settings.kafka_version,
        settings.kafka_max_messages,
        min(settings.kafka_max_message_size, MESSAGE_BYTES_MAX),
        settings.compression or "none",
        settings.idempotent,
        f"tidb-binlog-{cluster_id}-{settings.name}" if settings.transactions else "",
        Tls(tls.ca, tls.cert, tls.key) if tls else None,
        sasl,
    )


def sink_settings(settings: DrainerConfig, topic: str) -> SinkSettings:
    return SinkSettings(
        topic,
        settings.partition,
        settings.headers,
        settings.watermark_interval_s,
        settings.exactly_once,
        settings.transactions,
        settings.oversize,
        min(settings.kafka_max_message_size, MESSAGE_BYTES_MAX),
        settings.in_flight_bytes,
    )


async def rehearse(settings: DrainerConfig, cluster_id: int) -> None:
    """See `Builder`."""
    rehearse_without_position(settings)
    async with contextlib.AsyncExitStack() as ends:
        line = Line()
        options = client_settings(settings, cluster_id)
        client = await asyncio.to_thread(Client, options, line.answered, line.trouble)
        ends.push_async_callback(asyncio.to_thread, client.close, wait_s=0.0)
        await asyncio.to_thread(client.meet)
