"""Port: how an address is written, and whether this process may listen there; one wording for all."""

from __future__ import annotations

import errno
import re
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


def split_address(key: str, text: str) -> tuple[str, int]:
    """(host, port) of `host:port`, with or without http:// or https://; `ConfigError` names the key."""
    bare = re.sub(r"^https?://", "", text)
    host, separator, port = bare.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535 or "/" in bare:
        raise ConfigError(f"bad {key} host format: {text!r} is not host:port", hint=f"set {key} to host:port")
    return host.strip("[]"), int(port)
