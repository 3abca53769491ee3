"""Find free ports of this machine, and check required ones."""

import errno
import http.client
import random
import socket
from contextlib import closing

# Below the ephemeral ports of outgoing connections (32768 on Linux, 49152 elsewhere). A server that
# restarts on an ephemeral port may find it taken, even by a client that connects to this server.
_PORT_RANGE = range(20_000, 32_000)
PROBE_TIMEOUT_S = 2.0


class PortTaken(Exception):
    """Something else listens there; the text says what to do."""


def is_free(host: str, port: int) -> bool:
    """True when a server could listen there now."""
    return _find_obstacle(host, port) is None


def _find_obstacle(host: str, port: int) -> OSError | None:
    """Why no server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the servers do: a port that only lingers from the last run is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def require_free_ports(host: str, port: int, ops_port: int = 0) -> None:
    """PortTaken when the API's port, the next one or the operators' is in use, OSError when one of
    them cannot be listened on. The operators' port may be 0: there is none then."""
    for number, what, setting in (
        (port, "the API", "STORE_PORT"),
        (port + 1, "the authorization service", "STORE_PORT"),
        (ops_port, "the operators' port", "STORE_OPS_PORT"),
    ):
        obstacle = _find_obstacle(host, number)
        if obstacle is not None and obstacle.errno != errno.EADDRINUSE:
            said = f"{what} cannot listen on port {number} of {host} (STORE_HOST, {setting})"
            raise OSError(obstacle.errno, obstacle.strerror, said)
        if obstacle is not None:
            raise PortTaken(
                f"port {number} of {host}, wanted by {what}, is taken: stop what listens there"
                f" or choose another with {setting}"
            )


def is_answering(host: str, port: int, path: str) -> bool:
    """Whether a server there answers a GET with 200."""
    with closing(http.client.HTTPConnection(host, port, timeout=PROBE_TIMEOUT_S)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def find_free_port() -> int:
    """A free port outside the range of outgoing connections."""
    while True:
        port = random.choice(_PORT_RANGE)
        if is_free("127.0.0.1", port):
            return port


def find_free_port_pair() -> int:
    """A free port whose successor is free too."""
    while True:
        port = find_free_port()
        if is_free("127.0.0.1", port + 1):
            return port
