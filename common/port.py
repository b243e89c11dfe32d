"""Port: may this process listen there? One wording for every listener."""

from __future__ import annotations

import errno
import socket

from common.errors import ConfigError, PortTaken


def check_port_free(host: str, port: int, flag: str = "--addr") -> None:
    """Raise `PortTaken` when nobody could listen there now."""
    if port == 0:
        return
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bare, port))
        except OSError as error:
            raise port_taken(host, port, error, flag) from None


def port_taken(host: str, port: int, error: OSError, flag: str = "--addr") -> ConfigError:
    """The error for an address on which listening failed."""
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"cannot listen on {where}: the port is taken",
            hint=f"stop the process that uses port {port} or choose another with {flag}",
        )
    reason = error.strerror or str(error)
    return PortTaken(
        f"cannot listen on {where}: {reason}", hint=f"choose an address of this host with {flag}"
    )
