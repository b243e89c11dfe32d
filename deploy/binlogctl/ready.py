"""Ready: asks the node of this host whether it does its work, for the health checks of containers.

In     `pump` or `drainer`, and the flags that the node was started with; its file and its environment are
       read as it read them
Out    a line on standard output and the exit code: 0 ready, 1 not
Why    a check that knows the node's configuration needs no address of its own, and under mutual TLS it shows
       the node's certificate, which no check over plain HTTP can
Tests  tests/deploy/test_containers.py, tests/deploy/test_debian.py

    python -m binlogctl.ready pump --config /etc/tidb-binlog/pump.toml
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Final

from drainer.config import options as drainer
from pump import config as pump
from tidb_binlog.config import loading
from tidb_binlog.errors import BinlogError
from tidb_binlog.net.node_http import ask
from tidb_binlog.observe.show import print_lines
from tidb_binlog.serving.node_config import NodeConfig

READY: Final = 0
NOT_READY: Final = 1
DEADLINE_S: Final = 5.0
USAGE: Final = "usage: python -m binlogctl.ready pump|drainer [FLAG ...]"
NODES: Final[dict[str, tuple[type[NodeConfig], str]]] = {
    "pump": (pump.PumpConfig, pump.ENV_PREFIX),
    "drainer": (drainer.DrainerConfig, drainer.ENV_PREFIX),
}


def main(words: Sequence[str]) -> int:
    """Ask the node and print; the exit code."""
    program, flags = (words[0], words[1:]) if words else ("", ())
    if program not in NODES:
        print_lines(USAGE)
        return NOT_READY
    try:
        answer = asyncio.run(_readyz(program, flags))
    except BinlogError as error:
        print_lines(f"{program}: {error.message}")
        return NOT_READY
    print_lines(f"{program}: {answer}")
    return READY if answer == "ok" else NOT_READY


async def _readyz(program: str, flags: Sequence[str]) -> str:
    kind, prefix = NODES[program]
    settings = loading.load(kind, flags, os.environ, program=program, env_prefix=prefix)
    # A certificate is of the name that others know; without TLS no name needs to be known.
    address = settings.listen if settings.tls is None else settings.advertised
    if settings.status_address is not None:
        host, port = settings.status_address
        address = f"{host}:{port}"
    answer = await ask(program, address, "GET", "/readyz", settings.tls, deadline_s=DEADLINE_S)
    return answer.said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
