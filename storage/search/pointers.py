"""Where a page of hits ended, as the opaque text that asks for the next one."""

import base64
import binascii

from storage.errors import Invalid


def pointer(version: str, uuid: str) -> str:
    """The place behind this hit, newest version first, then by uuid."""
    return base64.urlsafe_b64encode(f"{version} {uuid}".encode()).decode().rstrip("=")


def place(pointer: str) -> tuple[str, str]:
    """The version and uuid of a pointer; Invalid when it is none."""
    try:
        padded = pointer + "=" * (-len(pointer) % 4)
        version, blank, uuid = base64.urlsafe_b64decode(padded).decode().partition(" ")
    except (binascii.Error, ValueError) as error:
        raise Invalid("not a pointer of a search", code="illegal_token") from error
    if not blank:
        raise Invalid("not a pointer of a search", code="illegal_token")
    return version, uuid
