"""Content-Disposition as callers ask for it, and as a header can carry it (RFC 6266, RFC 8187)."""

import re
import unicodedata
from urllib.parse import quote

from storage.errors import Invalid

PARAMETER = "content_disposition"
MAX_LENGTH = 1024
MAX_ENCODED = 3000
"""It travels in the query of a URL, whose line has at most 8,190 bytes."""

_KINDS = ("attachment", "inline")
# Possessive quantifiers: a header has one reading, and looking for others takes exponential time.
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]++"
_PART = re.compile(rf';\s*+({_TOKEN})\s*+=\s*+("(?:[^"\\]|\\.)*+"|[^;"]*+)\s*+')
_WHOLE = re.compile(rf"\s*+({_TOKEN})\s*+(?:{_PART.pattern})*+;?\s*+")
_EXAMPLE = 'attachment; filename="name.txt"'


def encode_disposition(asked: str) -> str:
    """The header's value: ASCII as it is, a file name beyond ASCII as `filename*` as well.

    Raises ValueError for control characters, and for other text beyond ASCII: no header carries it.
    """
    if len(asked) > MAX_LENGTH:
        raise ValueError(f"Must have at most {MAX_LENGTH} characters.")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in asked):
        raise ValueError("Must not hold control characters.")
    encoded = asked if asked.isascii() else _encoded(asked)
    if len(encoded) > MAX_ENCODED:
        raise ValueError(f"Must have at most {MAX_ENCODED} characters when encoded (RFC 8187).")
    return encoded


def _encoded(asked: str) -> str:
    whole = _WHOLE.fullmatch(asked)
    if whole is None:
        raise ValueError(f"Must be spelled as in: {_EXAMPLE}")
    parameters = [(name, _unquoted(value)) for name, value in _PART.findall(asked)]
    extended = any(name.lower() == "filename*" for name, _ in parameters)
    parts = [whole[1]]
    for name, value in parameters:
        if value.isascii():
            parts.append(f"{name}={value if name.endswith('*') else _quoted(value)}")
        elif name.lower() == "filename":
            parts.append(f"{name}={_quoted(_fallback(value))}")
            parts += [] if extended else [f"filename*=UTF-8''{quote(value, safe='')}"]
        else:
            raise ValueError(f"Only filename may have characters beyond ASCII, as in: {_EXAMPLE}")
    return "; ".join(parts)


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value.strip()


def _quoted(value: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def _fallback(name: str) -> str:
    """The name for clients that do not read `filename*`: accents and other letters are lost."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return "".join(c if c.isascii() and c != "%" else "_" for c in plain)


def check_inline(asked: str | None, *, served_here: bool) -> None:
    """Refuse `inline` for what the store serves itself: it may be HTML, and would run on its site.

    Raises Invalid.
    """
    if served_here and _kind(asked) == "inline":
        said = (
            "inline is possible only where the replica is a cloud bucket. The store serves the"
            " files of this replica from its own address, where no deposited page may run, and so"
            " only as attachments."
        )
        raise Invalid(f"Bad query parameter '{PARAMETER}': {said}", errors={PARAMETER: [said]})


def as_attachment(asked: str | None) -> str:
    """The disposition that was asked for, as an attachment with the same parameters."""
    _, semicolon, parameters = (asked or "").partition(";")
    # A browser may show what is of neither kind.
    return f"attachment{semicolon}{parameters}" if _kind(asked) in _KINDS else "attachment"


def _kind(asked: str | None) -> str:
    return (asked or "").partition(";")[0].strip().lower()
