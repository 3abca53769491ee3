"""Mail over SMTP."""

import socketserver
import threading
from collections.abc import Iterator

import pytest

from storage.errors import Unavailable
from storage.mail import Mailer

pytestmark = pytest.mark.spec("CHK-04")


class Session(socketserver.StreamRequestHandler):
    """Just enough of SMTP to be sent one mail."""

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        for line in self.rfile:
            command = line[:4].upper().strip()
            if command == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = list(iter(self.rfile.readline, b".\r\n"))
                self.server.mails.append(b"".join(lines).decode())  # type: ignore[attr-defined]
            if command == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 ok\r\n")


@pytest.fixture
def server() -> Iterator[socketserver.TCPServer]:
    with socketserver.TCPServer(("127.0.0.1", 0), Session) as opened:
        opened.mails = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=opened.serve_forever)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def test_a_mail_is_sent(server: socketserver.TCPServer) -> None:
    port = server.server_address[1]
    Mailer("127.0.0.1", port, "store@example.org")("a@example.org", "Done", "It is there.\n")
    (mail,) = server.mails  # type: ignore[attr-defined]
    assert "Subject: Done" in mail
    assert "To: a@example.org" in mail
    assert "It is there." in mail


def test_a_server_that_is_away_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        Mailer("127.0.0.1", 1, "s@example.org")("a@example.org", "s", "b")


def test_a_recipient_cannot_smuggle_headers() -> None:
    with pytest.raises(ValueError, match=r"linefeed|newline|CR"):
        Mailer("127.0.0.1", 1, "s@example.org")("a@b.c\r\nBcc: x@y.z", "s", "b")
