"""Before the start: the methods of a pump that cannot serve them yet, so that clients go elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from common.errors import Unavailable
from common.rpc import Service
from common.serving import health
from common.serving.starting import Starting
from common.wire import pump_pb2


def services(starting: Starting) -> list[Service]:
    """All that a pump serves, not served yet: each method answers UNAVAILABLE with the reason to wait."""

    def refusal() -> Unavailable:
        return Unavailable(f"pump is {health.STARTING}: {starting.reason}", hint="use another one")

    async def call(_: Any) -> bytes:
        raise refusal()

    async def stream(_: Any) -> AsyncIterator[bytes]:
        for reply in list[bytes]():
            yield reply
        raise refusal()

    services: list[Service] = []
    for service in pump_pb2.DESCRIPTOR.services_by_name.values():
        calls, streams, bidi = {}, {}, {}
        for method in service.methods:
            if not method.server_streaming:
                calls[method.name] = call
            elif method.client_streaming:
                bidi[method.name] = stream
            else:
                streams[method.name] = stream
        services.append(Service(service.full_name, calls, streams, bidi))
    return services
