"""Notifying: the notifier of a daemon, from the first moment to the exit code.

Tests  tests/common/serving/test_notifying.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidb_binlog.clock import SystemClock
from tidb_binlog.notify.events import Condition
from tidb_binlog.notify.notifier import Notifier
from tidb_binlog.process.daemon import Daemon
from tidb_binlog.serving.notify_options import NotifyOptions


def notifying(settings: NotifyOptions, kind: str, node_id: str, process: Daemon) -> Notifier | None:
    """Posts from now on, and the end; None where nobody is to be told. Raises `ConfigError`."""
    endpoint = settings.notify_endpoint
    if endpoint is None:
        return None
    notifier = Notifier(endpoint, kind, node_id, SystemClock())
    process.task("notify", notifier.run())
    process.on_end(notifier.finish)
    return notifier


def tell_of(notifier: Notifier | None, node_id: str, look: Callable[[], Iterable[Condition] | None]) -> None:
    """Whatever `look` finds, under the node's name; nothing where nobody is to be told."""
    if notifier is not None:
        notifier.known_as(node_id)
        notifier.look = look
