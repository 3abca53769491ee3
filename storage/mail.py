"""Mail through an SMTP server."""

import smtplib
from dataclasses import dataclass
from email.message import EmailMessage

from storage.errors import Unavailable

TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Mailer:
    """Sends plain text from one sender."""

    host: str
    port: int
    sender: str

    def __call__(self, to: str, subject: str, body: str) -> None:
        """Hand one mail to the server; Unavailable when it does not take it."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self.sender, to, subject
        message.set_content(body)
        try:
            with smtplib.SMTP(self.host, self.port, timeout=TIMEOUT_S) as server:
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            raise Unavailable(f"The mail was not taken: {error}") from error
