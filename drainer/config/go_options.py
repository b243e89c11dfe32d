"""Former options: what a Go drainer's command line and file may hold that needs no decision here any more.

They are accepted, so that a Go drainer's file can be used as it is, and remarked on once at the start. Two of
them still mean something: dispatch that is switched off asks for whole transactions, in order.

Tests  tests/drainer/config/test_options.py
"""

from __future__ import annotations

from dataclasses import dataclass

from tidb_binlog.config.declaring import option
from tidb_binlog.serving.node_config import NodeConfig


@dataclass(frozen=True, slots=True)
class FormerOptions(NodeConfig):
    """Options that the help does not list."""

    cache_binlog_count: int = option(
        8,
        key=None,
        flag="cache-binlog-count",
        kind="int",
        deprecated=True,
        help="queues are bounded in bytes: syncer.pull-queue",
    )
    log_rotate: str = option(
        "", key=None, flag="log-rotate", deprecated=True, help="log files are rotated at 300 MiB"
    )
    detect_interval: int = option(
        5,
        key="detect-interval",
        flag="detect-interval",
        kind="int",
        deprecated=True,
        help="pumps are watched, not polled",
    )
    enable_dispatch: bool | None = option(
        None,
        key="syncer.enable-dispatch",
        flag="enable-dispatch",
        kind="bool",
        deprecated=True,
        help='false is dispatch = "transaction"',
    )
    disable_dispatch: bool | None = option(
        None,
        key="syncer.disable-dispatch",
        flag="disable-dispatch",
        kind="bool",
        deprecated=True,
        help='true is dispatch = "transaction"',
    )
    enable_detect: bool | None = option(
        None,
        key="syncer.enable-detect",
        flag="enable-detect",
        kind="bool",
        deprecated=True,
        help="rows with a common key always go through one lane",
    )
    disable_detect: bool | None = option(
        None,
        key="syncer.disable-detect",
        flag="disable-detect",
        kind="bool",
        deprecated=True,
        help="rows with a common key always go through one lane",
    )
    to_merge: bool = option(
        False,
        key="syncer.to.merge",
        kind="bool",
        deprecated=True,
        help="changes of one row are always folded into one",
    )
    oracle_service_name: str = option(
        "", key="syncer.to.oracle-service-name", deprecated=True, help="there is no downstream Oracle here"
    )
    oracle_connect_string: str = option(
        "", key="syncer.to.oracle-connect-string", deprecated=True, help="there is no downstream Oracle here"
    )

    @property
    def dispatch_is_off(self) -> bool:
        """Whether dispatch is switched off. Of the switches, the first that is set counts."""
        if self.disable_dispatch is not None:
            return self.disable_dispatch
        return self.enable_dispatch is False
