"""Operations: what a drainer answers before it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drainer.app.operations import Operating
from drainer.mysql.connection import Target
from drainer.operate.control.http import Shown
from drainer.operate.control.standby import Standby
from drainer.operate.status.document import Status
from drainer.points.snapshot.drainer_hold import DrainerHold
from drainer.sink.findings import Findings
from tests.drainer.support.held_life import Everybody, settings_of
from tidb_binlog.clock import SystemClock
from tidb_binlog.door.http.routes import Peer, Request, Routes
from tidb_binlog.errors import Unavailable
from tidb_binlog.foreign_document import left_in
from tidb_binlog.net.http_client import Page
from tidb_binlog.notify.events import Condition
from tidb_binlog.notify.notifier import Notifier
from tidb_binlog.observe import log
from tidb_binlog.process.daemon import Daemon
from tidb_binlog.serving.starting import Starting


async def test_a_drainer_that_starts_is_asked_again_to_hold_its_stream() -> None:
    settings, routes = settings_of(Target("127.0.0.1", 1, "u", "")), Routes()
    starting = Starting(0.0, SystemClock(), lambda text: None)
    of_nothing: Any = None
    Operating(settings, lambda: settings, of_nothing, routes, SystemClock(), None, starting)

    async def ask(address: str, path: str, _timeout_s: float) -> Page:
        request = Request("PUT", path, address, None, Peer("127.0.0.1"))
        response = await routes.answer(request, Everybody())
        return Page(response.status, response.body, 0.0, 0.0, None)

    async def locate() -> str:
        return "drainer:8249"

    with pytest.raises(Unavailable, match="no rows are applied to a database just now"):
        await DrainerHold(locate, None, SystemClock(), ask).hold(limit_s=1.0, wait_s=1.0)


async def test_a_standby_that_takes_over_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = None
    settings = replace(settings_of(Target("127.0.0.1", 1, "u", "")), standby=True)
    process = Daemon("test", log.get("test"))
    starting = Starting(0.0, SystemClock(), lambda text: None)
    operating = Operating(settings, lambda: settings, process, Routes(), SystemClock(), None, starting)
    told: list[Condition] = []
    operating.notifier = cast(Notifier, SimpleNamespace(happened=told.append))

    async def at_once(self: Standby, register: object) -> None:
        assert told == []

    monkeypatch.setattr(Standby, "wait_and_register", at_once)
    await operating.take_name(nothing, nothing, nothing)
    assert [(one.type, one.subject) for one in told] == [("standby_took_over", settings.name)]


async def test_a_standby_goes_on_from_what_the_first_one_has_found_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: Any = None

    def life(*, standby: bool) -> Operating:
        target = Target("127.0.0.1", 1, "u", "")
        settings = replace(settings_of(target), standby=standby, data_dir=str(tmp_path))
        process, starting = Daemon("test", log.get("test")), Starting(0.0, SystemClock(), lambda text: None)
        return Operating(settings, lambda: settings, process, Routes(), SystemClock(), None, starting)

    first = life(standby=False)
    first.findings.drift.note_rows("d.t", 3, 1, 2)
    second = life(standby=True)

    async def at_once(self: Standby, register: object) -> None:
        first.findings.drift.note_rows("d.u", 4, 2, 3)

    monkeypatch.setattr(Standby, "wait_and_register", at_once)
    await second.take_name(nothing, nothing, nothing)
    second.findings.drift.note_rows("d.v", 1, 3, 4)
    third = Findings(SystemClock())
    third.keep_in(lambda: left_in(str(tmp_path / "findings.json")), lambda _document: None)
    assert third.drift.rows() == {"d.t": 3, "d.u": 4, "d.v": 1}


async def test_what_holds_is_not_known_while_nothing_is_applied() -> None:
    """What held before may hold still: it is not told to be over."""
    nothing: Any = None
    settings = settings_of(Target("127.0.0.1", 1, "u", ""))
    starting = Starting(0.0, SystemClock(), lambda text: None)
    operating = Operating(settings, lambda: settings, nothing, Routes(), SystemClock(), None, starting)
    notifier = cast(Notifier, SimpleNamespace(look=None))
    operating.notify(notifier)
    assert notifier.look() is None
    status: Any = SimpleNamespace(document=lambda: {"Sink": {"name": "s", "held": True}})
    operating._status, operating._running = status, True
    assert [one.subject for one in notifier.look() or ()] == ["s"]
    operating._status_task = None
    operating.interrupt("rows were refused", went_back=False)
    assert notifier.look() is None


def test_a_drainer_whose_downstream_is_away_is_not_ready() -> None:
    nothing: Any = None
    settings = settings_of(Target("127.0.0.1", 1, "u", ""))
    starting = Starting(0.0, SystemClock(), lambda text: None)
    operating = Operating(settings, lambda: settings, nothing, Routes(), SystemClock(), None, starting)
    operating._running, said = True, {"HeldUp": "lane 1: connection refused", "HeldUpS": 0.0}
    operating._shown = Shown(cast(Status, SimpleNamespace(document=lambda: said)))
    assert operating.unready() == ""
    said["HeldUpS"] = 9.9
    assert operating.unready() == "", "a moment is no trouble"
    said["HeldUpS"] = 10.0
    assert operating.unready() == "cannot write, for 10 s: lane 1: connection refused"
