"""The door: one listening port for gRPC and HTTP, over HTTP/2 and HTTP/1.1, in the clear or over TLS.

    sniff                what a connection speaks
    connection, control  HTTP/2 (RFC 9113): frames, streams, settings; `frames`, `streams`, `fields`,
                         `outbound` (flow control), `request_blocks`, `hpack` and `huffman` (RFC 7541),
                         `reply_blocks`, `abuse`, `life` (keepalive, drain)
    session, calls       gRPC (PROTOCOL-HTTP2): `stream_calls`, `messages`, `methods`, `grpc_words`; `plain`
                         for the rest
    http1                HTTP/1.1; `routes` and `admin` for both versions
    runner, wire, shell  the only rooms that know an event loop, with `turns` and `room`; `stats` counts,
                         `limits` bounds; `network` says what one peer is

A transport only: services are plain async functions (`common.rpc.Service`).
"""

from __future__ import annotations

from common.door.http.admin_guard import AdminGuard
from common.door.http.routes import Guard, Peer, Request, Response, Routes, json_response
from common.door.limits import Budget, Limits
from common.door.server.listener import Server, serve, serve_unix

__all__ = [
    "AdminGuard",
    "Budget",
    "Guard",
    "Limits",
    "Peer",
    "Request",
    "Response",
    "Routes",
    "Server",
    "json_response",
    "serve",
    "serve_unix",
]
