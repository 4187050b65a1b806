"""Addresses of servers: which are this machine's own, who answers, and sockets that hear nothing from elsewhere."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfplace.errors import ClusterError

ANSWER_S = 2.0
"""Time for a worker to answer a greeting; about a millisecond where all is well."""

RETURN_S = 30.0
"""Time for a worker that somebody else started to come (back)."""

SO_ATTACH_FILTER = 26
_PAUSE_S = 0.2

# Classic BPF, in the words of linux/filter.h: load the interface's index; is it loopback's? keep the packet : drop it.
_INTERFACE_INDEX = 0xFFFFF000 + 8
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06

# RFC 9113, section 3.4: a client begins with this and a SETTINGS frame (here an empty one: length 0, type 4, no flags,
# stream 0); so does the server.
_HTTP2_BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_FRAME_HEADER, _FRAME_TYPE, _SETTINGS = 9, 3, 4


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port".

    Raises:
      ClusterError: it is not of that form.
    """
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterError(f"worker address {address!r}", '"host:port", such as "10.0.0.7:2222"')
    return host.strip("[]"), int(port)


def worker_addresses(given: str | Sequence[str]) -> tuple[str, ...]:
    """Addresses ("host:port") of workers, in the order of their task numbers.

    Args:
      given: a text with commas between them, or a sequence.

    Raises:
      ClusterError: there is none, one is there twice, or is not of that form.
    """
    parts = given.split(",") if isinstance(given, str) else given
    addresses = tuple(str(part).strip() for part in parts)
    if not addresses or len(set(addresses)) < len(addresses):
        raise ClusterError(f"workers {', '.join(addresses) or 'none'}", "addresses of different workers")
    for address in addresses:
        split_address(address)
    return addresses


def answers(address: str, timeout_s: float) -> bool:
    """Whether a gRPC server at "host:port" answers within a time.

    It is greeted as any client of its protocol does. That it can be connected to would not tell: the kernel accepts
    connections for a process that is stopped. Takes about a millisecond, and nothing that TensorFlow might hang in.
    """
    try:
        with socket.create_connection(split_address(address), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(_HTTP2_BEGIN)
            header = b""
            while len(header) < _FRAME_HEADER and (more := connection.recv(_FRAME_HEADER - len(header))):
                header += more
            return len(header) == _FRAME_HEADER and header[_FRAME_TYPE] == _SETTINGS
    except OSError:
        return False


def await_answers(addresses: Sequence[str], limit_s: float) -> None:
    """Waits until a server answers at each address.

    Raises:
      ClusterError: one does not within the time.
    """
    deadline = time.monotonic() + limit_s
    silent = list(addresses)
    while silent := [address for address in silent if not answers(address, ANSWER_S)]:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"no answer from {', '.join(silent)} within {limit_s:g} s",
                "a worker at each address",
                "Start it there with `tfplace worker --port=PORT --host=HOST`.",
            )
        time.sleep(_PAUSE_S)


def cut_off(address: str) -> int:
    """Ends this process's connections to a server that does not answer: who waits for it hears that it is gone.

    Returns:
      How many there were.
    """
    host, port = split_address(address)
    hosts = {str(info[4][0]) for info in socket.getaddrinfo(host, port)}
    found = 0
    for connection in _own_sockets():
        with contextlib.suppress(OSError):  # it listens, or is closed meanwhile
            peer = connection.getpeername()
            if peer[1] == port and peer[0].removeprefix("::ffff:") in hosts:
                connection.shutdown(socket.SHUT_RDWR)
                found += 1
    return found


def own_address(peer: str) -> str:
    """This machine's address on the way to a host: the one under which that host finds it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.connect((peer, 9))  # sends nothing
        return str(unused.getsockname()[0])


def is_loopback(host: str) -> bool:
    """Whether a host name or address leads back to this machine's loopback interface only."""
    try:
        return all(ipaddress.ip_address(info[4][0]).is_loopback for info in socket.getaddrinfo(host, None))
    except OSError:
        return False


def hear_loopback_only(port: int, interface: str = "lo") -> int:
    """Makes this process's sockets listening on a port drop every packet that does not come in by loopback.

    TensorFlow's servers listen on all interfaces whatever address they are given, so this is done from outside, by a
    socket filter that needs no privileges. Connections inherit the filter.

    Args:
      port: which of the process's listening sockets.
      interface: name of the only interface to hear.

    Returns:
      How many sockets there were. 0 where the operating system has no such filters (it is not Linux).
    """
    if not hasattr(socket, "if_nametoindex") or not Path("/proc/self/fd").exists():
        return 0
    index = socket.if_nametoindex(interface)
    steps = [(_LOAD, 0, 0, _INTERFACE_INDEX), (_EQUAL, 0, 1, index), (_RETURN, 0, 0, 0xFFFFFFFF), (_RETURN, 0, 0, 0)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HP", len(steps), ctypes.addressof(code))
    found = 0
    for listening in _listening(port):
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        found += 1
    return found


def _listening(port: int) -> Iterator[socket.socket]:
    for candidate in _own_sockets():
        with contextlib.suppress(OSError):
            listens = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if listens and candidate.getsockname()[1] == port:
                yield candidate


def _own_sockets() -> Iterator[socket.socket]:
    """Duplicates of this process's sockets of IPv4 and IPv6, each closed after its turn."""
    if not Path("/proc/self/fd").exists():
        return
    for entry in list(Path("/proc/self/fd").iterdir()):
        # A duplicate of anything but a socket would stay open: a pipe's other end then never hears of its end.
        if not entry.is_socket():
            continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as candidate:
            if candidate.family in (socket.AF_INET, socket.AF_INET6):
                yield candidate
