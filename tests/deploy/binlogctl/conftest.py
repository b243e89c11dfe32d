"""binlogctl called in this process: what a start costs is paid by one test, not by all."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest

from binlogctl import program as program
from binlogctl.cli.parsers import PROGRAM
from tidb_binlog.errors import BinlogError
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry
from tidb_binlog.process import daemon


@dataclass(frozen=True)
class Done:
    """As a process would have ended."""

    code: int
    out: str
    err: str


Ctl = Callable[..., Awaitable[Done]]


@pytest.fixture
def ctl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Ctl]:
    """`await ctl("nodes", "-output", "json")`."""
    root = logging.getLogger()
    before = list(root.handlers)
    monkeypatch.setenv("COLUMNS", "250")

    async def call(*arguments: str) -> Done:
        capsys.readouterr()
        try:
            code = await program.run(list(arguments))
        except BinlogError as error:
            daemon.print_error(PROGRAM, error)
            code = error.exit_code
        except SystemExit as end:
            code = int(end.code or 0)
        told = capsys.readouterr()
        return Done(code, told.out, told.err)

    yield call
    for handler in list(root.handlers):
        if handler not in before:
            root.removeHandler(handler)


@pytest.fixture
async def registry(etcd_clean: str) -> AsyncIterator[EtcdRegistry]:
    """An empty one."""
    registry = await connect_registry(etcd_clean)
    yield registry
    await registry.close()
