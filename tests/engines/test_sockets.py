"""Connections to servers that do not answer."""

import socket

from tfplace.engines.sockets import cut_off


def test_whoever_waits_for_a_server_that_is_cut_off_hears_that_it_is_gone():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        waiting, going_on = (socket.create_connection(one.getsockname(), timeout=2) for one in (server, other))
        with waiting, going_on:
            assert cut_off(f"127.0.0.1:{server.getsockname()[1]}") == 1
            assert waiting.recv(1) == b""
            going_on.sendall(b"x")
            with other.accept()[0] as accepted:
                assert accepted.recv(1) == b"x"
