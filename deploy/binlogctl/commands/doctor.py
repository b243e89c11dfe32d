"""Doctor: the command in front of `binlogctl.doctor`.

Tests  tests/integration/test_readme.py
"""

from __future__ import annotations

from binlogctl.cli.command_line import Call


async def run(call: Call) -> int:
    """Raises `ConfigError` for options that cannot be meant; all else is a finding."""
    from binlogctl import doctor

    settings = call.settings
    options = doctor.DoctorOptions(
        pd_urls=settings.pd_urls,
        upstream=settings.upstream,
        drainer_config=settings.drainer_config,
        pump_config=settings.pump_config,
        tidb=settings.tidb,
        output=call.output,
        time_zone=settings.time_zone,
        ssl_ca=settings.ssl_ca,
        ssl_cert=settings.ssl_cert,
        ssl_key=settings.ssl_key,
    )
    return await doctor.run(options)
