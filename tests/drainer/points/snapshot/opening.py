"""The downstream's snapshot alone, opened as a comparison opens that of both sides."""

from __future__ import annotations

from drainer.config.options import DrainerConfig
from drainer.points.snapshot.downstream import (
    PATIENT,
    DownstreamSnapshot,
    Patience,
    open_where_it_is,
    persistently,
)
from drainer.points.snapshot.drainer_hold import DrainerHold


async def open_downstream(
    settings: DrainerConfig, drainer: DrainerHold, sessions: int, patience: Patience = PATIENT
) -> DownstreamSnapshot:
    """At the place where the stream is now."""

    async def once() -> DownstreamSnapshot:
        return await open_where_it_is(settings, drainer, sessions, patience)

    return await persistently(once, patience.all_s, "no snapshot of the downstream could be opened")
