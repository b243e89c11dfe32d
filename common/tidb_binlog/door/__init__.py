"""The door: one listening port for gRPC and HTTP, over HTTP/2 and HTTP/1.1, in the clear or over TLS.

    limits, network      what bounds a peer, and what one is; `protocol_detection` what it speaks
    http2                HTTP/2 (RFC 9113): `connection`, `control_frames`, `frames`, `streams`,
                         `header_fields`, `outbound` (flow control), `request_headers`, `hpack`,
                         `huffman` (RFC 7541), `reply_headers`, `abuse`, `grpc_headers`,
                         `lifetime` (keepalive, drain)
    http                 HTTP/1.1; `routes` and `admin_guard` for both versions
    calls                gRPC (PROTOCOL-HTTP2): `session`, `grpc_calls`, `stream_calls`, `message_framing`,
                         `methods`; `http_calls` for the rest
    server               the only modules that know an event loop: `listener`, `connection_transport`,
                         `handler_runner`, `fair_share`; `stats` counts

A transport only: services are plain async functions (`tidb_binlog.rpc.Service`).
"""
