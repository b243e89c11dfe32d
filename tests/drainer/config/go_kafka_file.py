"""Go Kafka file: a Go drainer's file for Kafka."""

from __future__ import annotations

# The keys of [syncer.to] that a Go drainer's file has for Kafka, as its shipped file shows them.
GO_FILE = """
addr = "127.0.0.1:8249"
data-dir = "data.drainer"
pd-urls = "http://127.0.0.1:2379"
compressor = ""

[security]

[syncer]
ignore-schemas = "INFORMATION_SCHEMA,PERFORMANCE_SCHEMA,mysql"
txn-batch = 20
worker-count = 16
disable-dispatch = false
safe-mode = false
db-type = "kafka"

[syncer.to]
zookeeper-addrs = "127.0.0.1:2181"
kafka-addrs = "127.0.0.1:9092,10.0.0.2:9092"
kafka-version = "0.8.2.0"
kafka-max-messages = 1024
kafka-max-message-size = 1073741824
kafka-client-id = "tidb_binlog"
topic-name = "orders_obinlog"

[syncer.to.checkpoint]
type = "file"
"""
