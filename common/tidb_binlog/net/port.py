"""Port: how an address is written, and whether this process may listen there; one wording for all.

A socket file outlives its process: one on which no process answers is removed, nothing else ever is.
"""

from __future__ import annotations

import errno
import os
import random
import re
import socket
import stat
from collections import deque
from typing import Final

from tidb_binlog.errors import ConfigError, PortTaken

LOOPBACK = "127.0.0.1"
_PORTS: Final = range(10_000, 32_000)  # Linux gives connections those from 32768 on
_PORT_DIGITS_MAX: Final = 5
_given: set[int] = set()
_claims: Final[deque[int]] = deque()
_CLAIMS_MAX: Final = 200
_random: Final = random.SystemRandom()  # two processes with the same seed do not collide


def free_ports(count: int) -> list[int]:
    """`count` TCP ports on which no process listens at 127.0.0.1 now. None is given twice, and none is of
    those that connections get: the process that got it may not listen yet, or was killed and starts again."""
    ports: list[int] = []
    if len(_given) > len(_PORTS) // 2:
        _given.clear()
    while len(ports) < count:
        port = _random.choice(_PORTS)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        if port not in _given and _claim(port):
            _given.add(port)
            ports.append(port)
    return ports


def _claim(port: int) -> bool:
    """Others see by its UDP port, which nothing here uses, that this process has it; the last ones only."""
    mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        mark.bind((LOOPBACK, port))
    except OSError:
        mark.close()
        return False
    _claims.append(mark.detach())
    if len(_claims) > _CLAIMS_MAX:
        os.close(_claims.popleft())
    return True


def free_port(preferred: int) -> int:
    """`preferred`, unless a process listens there at 127.0.0.1 now or this one was given it; else any."""
    if preferred not in _given:
        try:
            check_port_free(LOOPBACK, preferred)
        except PortTaken:
            pass
        else:
            if _claim(preferred):
                _given.add(preferred)
                return preferred
    return free_ports(1)[0]


def own_address(towards: tuple[str, int] = ("192.0.2.1", 9)) -> str:
    """The address of this host that another one sees; loopback if there is no network. Asks a name server
    where `towards` is a name."""
    try:
        family, _, _, _, address = socket.getaddrinfo(*towards, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # no packet is sent, only the route is chosen
            return str(probe.getsockname()[0])
    except OSError:
        return LOOPBACK


def check_port_free(host: str, port: int, flag: str = "--addr") -> None:
    """Raise `PortTaken` when a process could not listen there now."""
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
    """(host, port) of `host:port`, with or without http:// or https://; `ConfigError` names the key.

    A host is what can be asked of a name server: sockets and TLS raise `UnicodeError` for others.
    """
    bare = re.sub(r"^https?://", "", text)
    host, separator, port = bare.rpartition(":")
    digits = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS_MAX
    if not separator or not digits or int(port) > 65535 or "/" in bare:
        raise ConfigError(f"bad {key} host format: {text!r} is not host:port", hint=f"set {key} to host:port")
    host = host.strip("[]")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ConfigError(
            f"bad {key} host format: {text!r} has a host that no name server knows",
            hint=f"set {key} to host:port",
        ) from None
    return host, int(port)


def socket_path(key: str, text: str) -> str:
    """Path of `unix:///path`, `unix://path` or a plain path; `ConfigError` names the key."""
    path = text.removeprefix("unix://")
    if not path or "://" in path or path.endswith("/"):
        raise ConfigError(
            f"bad {key} format: {text!r} is no path of a file", hint=f"write {key} as unix:///path"
        )
    return path


def check_socket_free(path: str, flag: str = "--socket") -> None:
    """Make room for a socket file. Raises `PortTaken`, `ConfigError`."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise socket_unusable(path, error, flag) from None
    if not stat.S_ISSOCK(mode):
        raise ConfigError(
            f"cannot listen on {path}: it is there and no socket", hint=f"choose another {flag}"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            pass
        except BlockingIOError:  # a process listens and is busy
            raise _socket_taken(path, flag) from None
        except OSError as error:
            raise socket_unusable(path, error, flag) from None
        else:
            raise _socket_taken(path, flag)
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise socket_unusable(path, error, flag) from None


def socket_unusable(path: str, error: OSError, flag: str = "--socket") -> ConfigError:
    """The error for a socket file on which listening failed."""
    if error.errno == errno.EADDRINUSE:
        return _socket_taken(path, flag)
    reason = error.strerror or str(error)
    return ConfigError(
        f"cannot listen on {path}: {reason}", hint=f"choose a path in a directory that is there with {flag}"
    )


def _socket_taken(path: str, flag: str) -> ConfigError:
    return PortTaken(
        f"cannot listen on {path}: another process does", hint=f"stop it or choose another path with {flag}"
    )
