"""The queue of a machine without redis-server: in memory, on a Unix socket, with a password.

Nothing is kept: the to-do table refills the queues of an emptied one at once. fakeredis brings the
commands; its own TCP server closes a connection after any error reply and looks at each connection
a hundred times a second, so the connections are ours: each blocks until its client speaks, and what
is published goes out at once.

fakeredis gives scripts all of Lua and of Python. Ours run in a sandbox: see `SandboxedLua`.
"""

import hmac
import os
import socket
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingUnixStreamServer
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from fakeredis import FakeServer
from fakeredis._clients._sync import FakeRedisConnection
from fakeredis._clients._tcp_server import encode_reply
from fakeredis._helpers import SimpleError
from fakeredis._socket import FakeSocket
from fakeredis.commands_mixins import scripting_mixin
from lupa import lua51

CHUNK = 65_536
SEND_TIMEOUT_S = 2
"""A client that does not read is dropped: a publisher would wait for it."""
SWITCH_S = 0.0005
"""What a command has to do takes less; by default a thread that wakes up waits ten times as long
for its turn, and every command wakes one up."""
GLOBALS = frozenset(
    {"_G", "_VERSION", "collectgarbage", "ipairs", "math", "next", "pairs", "pcall", "string"}
    | {"table", "tonumber", "type", "unpack"}
)
"""What scripts of the store and of dramatiq may use, beside `redis`, `KEYS` and `ARGV`."""
UNNEEDED = frozenset({b"FUNCTION", b"FCALL", b"FCALL_RO"})
"""Commands of a second Lua interpreter, which the queue does not need."""


def refuse_attribute(_value: object, _name: object, _setting: bool) -> str:
    """Scripts may call what they are given, not look into it."""
    raise AttributeError("attributes of the server's objects are not accessible")


class SandboxedLua(lua51.LuaRuntime):  # type: ignore[misc]
    """Lua without `os`, `io`, `python`, loaders, bytecode and attributes of Python objects."""

    def __new__(cls, **options: Any) -> "SandboxedLua":
        """Remove all globals that no script needs, before any script runs."""
        made: SandboxedLua = super().__new__(
            cls,
            register_eval=False,
            register_builtins=False,
            attribute_filter=refuse_attribute,
            **options,
        )
        names = made.globals()
        for name in list(names):
            if name.decode() not in GLOBALS:
                names[name] = None
        names[b"string"][b"dump"] = None
        return made

    def execute(self, script: str | bytes, *args: Any) -> Any:
        """Run source text; bytecode can break out of the interpreter."""
        if script[:1] in (b"\x1b", "\x1b"):
            raise SimpleError("ERR compiled scripts are refused")
        try:
            return super().execute(script, *args)
        except (SimpleError, lua51.LuaError):
            raise
        except Exception as error:
            # fakeredis would end the connection.
            raise SimpleError(f"ERR {type(error).__name__} in a script") from error


scripting_mixin.LUA_MODULE = SimpleNamespace(  # type: ignore[assignment]
    LuaRuntime=SandboxedLua, LuaError=lua51.LuaError, lua_type=lua51.lua_type
)


class Commands(FakeSocket):
    """The commands of one connection, refused until it has given the password."""

    password = b""
    authenticated = False

    def _process_command(self, fields: list[bytes]) -> None:
        name = fields[0].upper() if fields else b""
        if given := _credentials(name, fields):
            self.authenticated = hmac.compare_digest(given[-1], self.password)
            refusal = None if self.authenticated else "WRONGPASS invalid password."
            fields = [b"PING"] if name == b"AUTH" else fields[:2]
        else:
            refusal = None if self.authenticated else "NOAUTH Authentication required."
        if name in UNNEEDED:
            refusal = refusal or "ERR unknown command"
        if refusal:
            self.put_response(SimpleError(refusal))
        elif name == b"AUTH":
            self.put_response(b"OK")
        else:
            super()._process_command(fields)


def _credentials(name: bytes, fields: list[bytes]) -> list[bytes]:
    """User name and password of `AUTH [user] password` and `HELLO 3 AUTH user password`."""
    if name == b"AUTH":
        return fields[1:3]
    return fields[3:5] if name == b"HELLO" and [*map(bytes.upper, fields[2:3])] == [b"AUTH"] else []


class Connection(FakeRedisConnection):
    """One client's connection to the data."""

    def _connect(self) -> FakeSocket:
        return Commands(
            cast("FakeServer", self._server),
            client_class=self._client_class,
            db=self.db,
            client_info=self._client_info,
        )


class QueueServer(ThreadingUnixStreamServer):
    """Threads of clients that are still connected do not hold up the end of the process."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, password: str) -> None:
        path.unlink(missing_ok=True)
        super().__init__(str(path), Client)
        self.password = password.encode()
        self.data = FakeServer(server_type="redis", version=(7, 4))

    def server_bind(self) -> None:
        """Nobody but the owner may connect, from the first moment."""
        before = os.umask(0o177)
        try:
            super().server_bind()
        finally:
            os.umask(before)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is nothing to report."""


class Client(BaseRequestHandler):
    """One connection."""

    server: QueueServer
    request: socket.socket

    def handle(self) -> None:
        """Pass on what the client says until it hangs up; replies are sent as they arise."""
        limit = struct.pack("ll", SEND_TIMEOUT_S, 0)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self.sending = threading.Lock()
        # Every connection begins with the older protocol and may ask for the newer one.
        connection: Any = Connection(server=self.server.data, protocol=2)
        self.commands = connection.get_socket()
        self.commands.password = self.server.password
        self.commands.put_response = self.reply
        try:
            while data := self.request.recv(CHUNK):
                self.commands.sendall(data)
        finally:
            connection.disconnect()

    def reply(self, value: Any) -> None:
        """Send one reply or one published message; called from any client's thread."""
        encoded = encode_reply(value, self.commands._client_info.protocol_version)
        try:
            with self.sending:
                self.request.sendall(encoded)
        except OSError:
            # Whoever publishes to a client that is gone must not fail for it; its own thread ends.
            with suppress(OSError):
                self.request.shutdown(socket.SHUT_RDWR)


def main(url: str) -> None:
    """Serve `unix://:password@path` until the process is told to end."""
    sys.setswitchinterval(SWITCH_S)
    parts = urlsplit(url)
    QueueServer(Path(unquote(parts.path)), unquote(parts.password or "")).serve_forever()


if __name__ == "__main__":
    # From the environment, since other users can read the arguments of a process.
    main(os.environ["STORE_REDIS_URL"])
