"""gRPC: services as plain functions, a client on grpcio's channels, and grpcio's server."""

from __future__ import annotations

from tidb_binlog.rpc.caller import Caller, caller
from tidb_binlog.rpc.client import Client
from tidb_binlog.rpc.grpcio_server import Server, serve
from tidb_binlog.rpc.service import (
    CANCELLED,
    DATA_LOSS,
    DEADLINE_EXCEEDED,
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    OK,
    RECEIVE_BYTES_MAX,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
    BidiStream,
    ClientStream,
    RpcStatus,
    ServerStream,
    Service,
    Take,
    TakenCalls,
    Unary,
    status_of,
)

__all__ = [
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "OK",
    "RECEIVE_BYTES_MAX",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "UNKNOWN",
    "BidiStream",
    "Caller",
    "Client",
    "ClientStream",
    "RpcStatus",
    "Server",
    "ServerStream",
    "Service",
    "Take",
    "TakenCalls",
    "Unary",
    "caller",
    "serve",
    "status_of",
]
