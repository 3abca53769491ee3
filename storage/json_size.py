"""Memory that a JSON text takes once it is parsed, estimated before it is.

Small values amplify: 20 MB of `{"":1}` become 600 MB of Python objects. The estimate counts the
characters that make values; it is an upper bound, within a factor of about three.
"""

import re

from storage.errors import TooLarge

MB = 1024 * 1024
MAX_PARSED_BYTES = 256 * MB
"""Of one metadata file, and of all metadata files of a document."""
MAX_FACTOR = 50
"""Times its length that a text may take once it is parsed, at the most: of `[{},{},…]`."""
LARGE_BYTES = 32 * MB
"""From here on the estimate leaves texts out, which takes longer."""

_COSTS = ((b"{", 130), (b"[", 80), (b":", 65), (b'"', 25), (b",", 12))
"""Bytes of an object, a list, a member, half a text and a place in a list, measured on CPython."""
_NUMBER, _DIGIT = 33, 7
"""Bytes of a number: no more than the first for each value, nor than the second for each digit."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STRINGS = re.compile(rb'(?:[^"]*+"[^"\\]*+(?:\\.[^"\\]*+)*+"){1,4096}', re.DOTALL)
"""So many texts and what is between them: leaving out all at once would take much memory itself."""
_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)


def parsed_size(text: bytes) -> int:
    """Bytes of memory that the value of a text takes, about; the text need not be JSON."""
    size = rough_size(text)
    if size <= LARGE_BYTES:
        return size
    size = position = 0
    while found := _STRINGS.match(text, position):
        bare = _STRING.sub(b'""', found[0])
        size += len(found[0]) - len(bare) + rough_size(bare)
        position = found.end()
    return size + rough_size(text[position:])


def rough_size(text: bytes) -> int:
    """The same in a hundredth of the time; commas and the like within texts count as values."""
    # Twice as fast as leaving the digits out.
    digits = text.translate(_DIGITS_AS_ZEROS).count(b"0")
    numbers = min(_NUMBER * (text.count(b",") + 1), _DIGIT * digits)
    return len(text) + numbers + sum(text.count(sign) * cost for sign, cost in _COSTS)


def check_size(size: int, most: int) -> None:
    """Raise TooLarge for a value of more than `most` bytes of memory."""
    if size > most:
        raise TooLarge(
            f"Too many small values: they would take {size // MB} MB of memory"
            f" (at most {most // MB} MB)"
        )
