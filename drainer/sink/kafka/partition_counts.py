"""Partition counts: how many partitions of each topic are in use, as it stays until a place without messages.

    DATA-DIR/kafka-partitions.json      {"topic": count}, and a checksum

Why    a key's partition depends on their number. A topic that grows is spread anew only where everything
       sent before is acknowledged and the checkpoint is behind it: so what comes again after a crash goes to
       the partition where it may be already, and changes of a key are stored in their order
Holds  the file is written before the first message under a new number

Tests  tests/drainer/sink/kafka/test_kafka_sink.py
"""

from __future__ import annotations

import json
import os
from typing import Final

from tidb_binlog import checked
from tidb_binlog.errors import ConfigError
from tidb_binlog.filesystem import replace_file
from tidb_binlog.foreign_document import UNREADABLE

NAME: Final = "kafka-partitions.json"


class PartitionCounts:
    """Raises `ConfigError` for a file that cannot be read."""

    def __init__(self, data_dir: str) -> None:
        self._path = os.path.join(data_dir, NAME)
        self._counts: dict[str, int] = {}
        try:
            with open(self._path, encoding="utf-8") as file:
                counts = json.loads(checked.read_text(file.read()))
            self._counts = {str(topic): int(count) for topic, count in counts.items()}
        except FileNotFoundError:
            pass
        except (OSError, AttributeError, TypeError, *UNREADABLE) as error:
            raise ConfigError(
                f"{self._path} cannot be read: {error}",
                hint="restore it; without it keys of topics that have grown may move to other partitions",
            ) from None

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._counts)

    def of(self, topic: str) -> int | None:
        return self._counts.get(topic)

    def store(self, topic: str, count: int) -> None:
        """Durable when it returns. Raises `OSError`."""
        counts = {**self._counts, topic: count}
        replace_file(self._path, checked.text(json.dumps(counts, indent=1) + "\n").encode(), 0o644)
        self._counts = counts
