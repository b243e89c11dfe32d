"""Verify options: a Drainer that compares its downstream with the upstream every so often.

Tests  tests/drainer/config/test_verify_options.py
"""

from __future__ import annotations

from dataclasses import dataclass

from drainer.config.upstream_options import SECTION, UpstreamOptions
from tidb_binlog.config.declaring import option
from tidb_binlog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class VerifyOptions(UpstreamOptions):
    """The budget is of what both servers read for it."""

    verify_every_s: float = option(
        "0s",
        key="verify.every",
        kind="duration",
        help="pause between two comparisons of all tables with the upstream; 0s: never",
        more="A process of its own compares, with [syncer.from]. The result is in /status (Verify), in "
        "the metrics and in `binlogctl status`. See [verify](verify.md).",
    )
    verify_rows: int = option(
        50_000,
        key="verify.rows-per-second",
        kind="int",
        help="rows a second that are compared at most; 0: unlimited",
    )

    def check_verify(self, *, to_database: bool) -> None:
        """Raises `ConfigError`."""
        if self.verify_rows < 0:
            raise ConfigError(
                f"verify.rows-per-second is {self.verify_rows}", hint="rows a second; 0 is unlimited"
            )
        if not self.verify_every_s:
            return
        if self.verify_every_s < 0:
            raise ConfigError("verify.every is below zero", hint='a duration like "6h"; "0s": never')
        if not to_database:
            raise ConfigError("verify.every is for db-type mysql and tidb", hint="take [verify] out")
        if not self.has_upstream:
            raise ConfigError(
                "verify.every needs the upstream's SQL address", hint=f"set host and user in [{SECTION}]"
            )
