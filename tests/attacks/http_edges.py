"""HTTP requests to every route that a node declares, with every parameter at its edges."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.waiting import PATIENCE_S

ROOT: Final = Path(__file__).parents[2]
METHODS: Final = ("GET", "PUT", "POST", "HEAD", "DELETE", "OPTIONS")
TEXTS: Final = (
    "", "0", "1", "-1", "+5", "1_0", "9" * 18, "9" * 19, "9" * 5000, "1.5", "1e309", "nan", "true", "%C2%B2",
    "%00", "%FF", "%0D%0AX:%201", "..%2F..%2Fetc", "%2F", "x" * 7000, "skip", "rewrite",
    "rolled-back", "pause", "10 GiB",
)  # fmt: skip
BODIES: Final = (b"", b"\xff" * 10, b"x" * (33 << 10), b"DROP TABLE t")
WELL_MEANT: Final = {200, 400, 403, 404, 405, 409, 413, 431, 503}
"""What a node answers, whatever it is asked."""
AT_ONCE: Final = 12


@cache
def declared() -> tuple[list[tuple[str, str]], list[str]]:
    """(method, pattern) of each route in the product, and the names of query parameters."""
    texts = [path.read_text() for top in ("pump", "drainer", "common") for path in (ROOT / top).rglob("*.py")]
    routes = [one for text in texts for one in re.findall(r'routes\.add\w*\(\s*"(\w+)", "(/[^"]*)"', text)]
    names = r'params(?:\.get\(|\[|, )"(\w+)"|"(\w+)" in params'
    found = {name for text in texts for pair in re.findall(names, text) for name in pair if name}
    inside = {name for _, pattern in routes for name in re.findall(r"\{(\w+)\}", pattern)}
    assert len(routes) > 15
    assert {"limit_ms", "rows", "token", "force"} <= found
    return routes, sorted(found - inside)


def requests() -> Iterator[bytes]:
    routes, names = declared()
    for number, (method, pattern) in enumerate(routes):
        for at, text in enumerate(TEXTS):
            path = re.sub(r"\{\w+\}", lambda _: text.replace(" ", "%20"), pattern)  # noqa: B023
            some = (names[(number + at) % len(names)], names[(7 * number + at) % len(names)])
            query = "&".join(f"{name}={text}" for name in some).replace(" ", "%20")
            asked = METHODS[at % len(METHODS)] if at % 4 == 0 else method
            body = BODIES[at % len(BODIES)] if asked in ("PUT", "POST") else b""
            head = (
                f"{asked} {path}?{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            yield head.encode() + body


async def ask_all(address: str) -> Counter[int]:
    """Some at a time, each on a connection of its own; the statuses."""
    host, port = address.split(":")
    statuses, left = Counter[int](), requests()

    async def ask() -> None:
        for request in left:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(request)
                head = await reader.readuntil(b"\r\n")
                writer.close()
                await writer.wait_closed()
            status = int(head.split()[1])
            assert status in WELL_MEANT, (head, request[:200])
            statuses[status] += 1

    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    return statuses
