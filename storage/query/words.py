"""The one analysis of text: Unicode words (UAX #29) that hold a letter or a digit, lower-cased.

Documents, queries and stored queries all go through here, so that none can disagree. A linear
regular expression does what the standard's rules say of words and skips what they say of the rest.
"""

import re
from functools import cache

from storage.query import word_classes as classes

ANALYSIS = "words1"
"""Names this analysis; it is part of an index's name, since words of two analyses do not mix."""

MAX_WORD_CHARACTERS = 255
"""Longer words are cut into pieces of this length, as the standard analysis does."""


def _members(*ranges: str) -> str:
    """Ranges of hexadecimal code points as the inside of a character class."""
    members = []
    for part in " ".join(ranges).split():
        first, _, last = part.partition("-")
        members.append(f"\\U{int(first, 16):08x}-\\U{int(last or first, 16):08x}")
    return "".join(members)


def _word_expression() -> str:
    letter = f"[{_members(classes.LETTER, classes.HEBREW)}]"
    hebrew, digit = f"[{_members(classes.HEBREW)}]", f"[{_members(classes.NUMERIC)}]"
    marks = f"[{_members(classes.EXTEND)}]*+"
    connector = f"(?:[{_members(classes.CONNECTOR)}]{marks})"
    mid_letter = f"[{_members(classes.MID_LETTER, classes.MID_BOTH)}']"
    mid_number = f"[{_members(classes.MID_NUMBER, classes.MID_BOTH)}']"
    # After a Hebrew letter an apostrophe is kept; unless a letter follows, it ends the word.
    closing = f"(?:{hebrew}{marks}'{marks}(?!{letter}))"
    # A joining sign is taken with what stands before it, and only if the right thing follows.
    unit = (
        f'(?:{hebrew}{marks}"{marks}(?={hebrew})'
        f"|(?!{closing}){letter}{marks}(?:{mid_letter}{marks}(?={letter}))?+"
        f"|{digit}{marks}(?:{mid_number}{marks}(?={digit}))?+)"
    )
    run = f"(?:{unit}++{closing}?+|{closing}|(?:[{_members(classes.KATAKANA)}]{marks})++)"
    more = f"(?<!'){connector}++"
    word = f"{connector}++(?:{run}{more})*+{run}?+|{run}(?:{more}{run})*+(?:{more})?+"
    single = f"[{_members(classes.SINGLE)}]{marks}"
    complex_run = f"(?:[{_members(classes.COMPLEX)}]{marks})++"
    return f"{word}|{single}|{complex_run}"


ASCII_WORD = re.compile(
    r"[a-z0-9_](?:[a-z0-9_]|(?<=[a-z])[:.'](?=[a-z])|(?<=[0-9])[,;.'](?=[0-9]))*+"
)


@cache
def _any_word() -> re.Pattern[str]:
    """Compiled when first needed: that takes half a second, which not every process should wait."""
    return re.compile(_word_expression())


CONNECTORS = re.compile(f"[{_members(classes.CONNECTOR, classes.EXTEND)}]*")


def words(text: str) -> list[str]:
    """The words of a text in order, lower-cased; no word is longer than MAX_WORD_CHARACTERS."""
    expression = ASCII_WORD if text.isascii() else _any_word()
    found = [word for word in expression.findall(folded(text)) if _has_letter_or_digit(word)]
    if len(text) <= MAX_WORD_CHARACTERS or max(map(len, found), default=0) <= MAX_WORD_CHARACTERS:
        return found
    return [piece for word in found for piece in _pieces(word)]


def _has_letter_or_digit(word: str) -> bool:
    return word[0].isalnum() or not CONNECTORS.fullmatch(word)


def folded(text: str) -> str:
    """Lower case, character by character, so that no length changes and no neighbour matters."""
    if text.isascii():
        return text.lower()
    # These two alone depend on context or become longer in full Unicode lower-casing.
    return text.replace("\u0130", "i").replace("\u03a3", "\u03c3").lower()


def _pieces(word: str) -> list[str]:
    starts = range(0, len(word), MAX_WORD_CHARACTERS)
    return [word[start : start + MAX_WORD_CHARACTERS] for start in starts]
