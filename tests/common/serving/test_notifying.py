"""A daemon tells how it ended, whatever the end was, and when nobody is to be told nothing happens."""

from __future__ import annotations

import json

import pytest

from tests.common.notify.receiver import Receiver, listening
from tidb_binlog.errors import Conflict
from tidb_binlog.observe import log
from tidb_binlog.process.daemon import Daemon
from tidb_binlog.serving.notify_options import NotifyOptions
from tidb_binlog.serving.notifying import notifying


@pytest.mark.parametrize("fails", [True, False])
async def test_the_exit_code_and_its_reason_are_told_last(
    fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def setup(process: Daemon) -> None:
        if fails:
            raise Conflict("the id is taken", hint="choose another")
        process.stop()

    async with listening(Receiver()) as receiver:
        process = Daemon("test", log.get("test"))
        options = NotifyOptions(notify_url=f"http://127.0.0.1:{receiver.port}/hook")
        assert notifying(options, "pump", "p1", process) is not None
        code = await process.run(setup)
    assert code == (5 if fails else 0)
    (body,) = [body for _, _, body in receiver.came]
    found = json.loads(body)
    assert (found["type"], found["state"], found["subject"]) == ("ended", "happened", "p1")
    reason = "the id is taken (choose another)" if fails else "stopped on request"
    assert found["details"] == {"exit_code": code, "reason": reason}
    capsys.readouterr()


async def test_without_a_url_nobody_is_told() -> None:
    process = Daemon("test", log.get("test"))
    assert notifying(NotifyOptions(), "pump", "p1", process) is None
