"""What tests of reparo have in common: a run of it in this process, the databases it may not count."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from drainer.mysql.connection import Target
from drainer.reparo.applying import Application
from drainer.reparo.options import ReparoConfig
from drainer.reparo.ordered_records import surveyed
from drainer.reparo.summary import Summary


def config_for(target: Target, archive: str | Path, **more: Any) -> ReparoConfig:
    """Checked as a command line would be."""
    config = ReparoConfig(
        data_dir=str(archive),
        dest_type="mysql",
        to_host=target.host,
        to_port=target.port,
        to_user=target.user,
        to_password=target.password,
        to_socket=target.socket,
        **more,
    )
    config.validate()
    return config


def apply(target: Target, archive: str | Path, **more: Any) -> Summary:
    """A whole run."""
    config = config_for(target, archive, **more)

    async def run() -> Summary:
        return await Application(config, surveyed(config), asyncio.Event()).run()

    return asyncio.run(run())
