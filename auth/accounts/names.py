"""What records may be called."""

import re

from auth.accounts.limits import MAX_ID
from storage.errors import Invalid

PATTERN = r"^[0-9a-zA-Z.@_$,=-]{1,128}$"
SPELLED = f"Must be 1 to {MAX_ID} of 0-9 a-z A-Z . @ _ - $ , ="
MAILED = "Must be an e-mail address."
_ID = re.compile(r"[0-9a-zA-Z.@_$,=-]{1,128}", re.ASCII)
_EMAIL = re.compile(r"[^@]+@[^@]+", re.ASCII)


def is_id(text: str) -> bool:
    """Whether a record may be called so."""
    return bool(_ID.fullmatch(text))


def is_user_id(text: str) -> bool:
    """Whether a user may: they go by their e-mail addresses."""
    return is_id(text) and bool(_EMAIL.fullmatch(text))


def id_of(text: str, *, where: str) -> str:
    """The id as it came; Invalid for what can be none."""
    if not is_id(text):
        raise Invalid(f"Bad {where}: {SPELLED}", errors={where: [SPELLED]})
    return text
