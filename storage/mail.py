"""Send mail through an SMTP server."""

import smtplib
from dataclasses import dataclass
from email.message import EmailMessage

from storage.errors import Unavailable

SMTP_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Mailer:
    """Sends plain-text mail from one sender."""

    host: str
    port: int
    sender: str

    def __call__(self, to: str, subject: str, body: str) -> None:
        """Pass one mail to the server; Unavailable if it does not accept it."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self.sender, to, subject
        message.set_content(body)
        try:
            with smtplib.SMTP(self.host, self.port, timeout=SMTP_TIMEOUT_S) as server:
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            raise Unavailable(f"The mail server rejected the mail: {error}") from error
