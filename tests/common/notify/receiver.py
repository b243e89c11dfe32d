"""A receiver of events: answers as it is told, and keeps what came."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.waiting import until


class Receiver:
    """`answers`: statuses in order, the last one again and again; 0: no answer at all."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers or (204,))
        self.came: list[tuple[str, dict[str, str], bytes]] = []
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers["Content-Length"]))
        self.came.append((head[0], {name.lower(): value for name, value in headers.items()}, body))
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status:
            writer.write(
                f"HTTP/1.1 {status} X\r\nContent-Length: 4\r\nConnection: close\r\n\r\nsaid".encode()
            )
            await writer.drain()
            writer.close()

    async def until(self, count: int) -> None:
        await until(lambda: len(self.came) >= count)


@asynccontextmanager
async def listening(receiver: Receiver, context: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    server = await asyncio.start_server(receiver.answer, "127.0.0.1", 0, ssl=context)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for writer in receiver.writers:
            writer.transport.abort()
        await asyncio.sleep(0)
