"""A drainer as a process that ends by itself."""

from __future__ import annotations

from pathlib import Path

from binlog_playground.cluster.mariadb import MariaDbServer
from tests import forked


def command(tmp_path: Path, etcd: str, port: int, toml: str) -> list[str]:
    """Its arguments."""
    config = tmp_path / "drainer.toml"
    config.write_text(toml)
    return [
        f"--config={config}",
        f"--pd-urls={etcd}",
        f"--addr=127.0.0.1:{port}",
        f"--data-dir={tmp_path / 'data'}",
        "--node-id=drainer-under-test",
        f"--log-file={tmp_path / 'drainer.log'}",
    ]


def downstream(server: MariaDbServer, password: str = "", host: str = '"127.0.0.1"') -> str:
    return (
        f'[syncer.to]\nhost = {host}\nport = {server.port}\nuser = "{server.user}"\n'
        f'password = "{password or server.password}"\n'
    )


def ended(arguments: list[str], program: str = "drainer") -> tuple[int, str]:
    """Its code and its last line."""
    result = forked.run(program, *arguments)
    return result.returncode, result.stderr.strip().splitlines()[-1]
