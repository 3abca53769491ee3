"""Split text into lower-cased Unicode words (UAX #29).

Documents, queries and stored queries are all analysed here, so they always agree. A linear regular
expression implements the standard's rules for words.

Possessive quantifiers keep matching linear in memory; the patterns mean the same without them.
Python 3.11 has them, but before 3.11.5 they sometimes match wrongly or never return.
"""

import re
import sys
from functools import cache

from storage.search import word_classes

POSSESSIVE_WORKS = sys.version_info >= (3, 11, 5)
POSSESSIVE = "+" if POSSESSIVE_WORKS else ""
"""Suffix of quantifiers that never backtrack."""

ANALYSIS = "words1"
"""Version of this analysis; part of an index's name, since words of two versions do not mix."""

MAX_WORD_CHARACTERS = 255
"""Longer words are cut into pieces of this length, as in the standard analysis."""


def _class_members(*ranges: str) -> str:
    """Return ranges of hexadecimal code points as the inside of a character class."""
    members = []
    for part in " ".join(ranges).split():
        first, _, last = part.partition("-")
        members.append(f"\\U{int(first, 16):08x}-\\U{int(last or first, 16):08x}")
    return "".join(members)


def word_expression(p: str = POSSESSIVE) -> str:
    """Return the expression of a word; `p` makes quantifiers possessive, with the same matches."""
    letter = f"[{_class_members(word_classes.LETTER, word_classes.HEBREW)}]"
    hebrew, digit = (
        f"[{_class_members(word_classes.HEBREW)}]",
        f"[{_class_members(word_classes.NUMERIC)}]",
    )
    marks = f"[{_class_members(word_classes.EXTEND)}]*{p}"
    connector = f"(?:[{_class_members(word_classes.CONNECTOR)}]{marks})"
    mid_letter = f"[{_class_members(word_classes.MID_LETTER, word_classes.MID_BOTH)}']"
    mid_number = f"[{_class_members(word_classes.MID_NUMBER, word_classes.MID_BOTH)}']"
    # After a Hebrew letter an apostrophe is kept; unless a letter follows, it ends the word. No
    # mark follows either: marks that give one back would find that no letter does.
    follows = f"[{_class_members(word_classes.LETTER, word_classes.HEBREW, word_classes.EXTEND)}]"
    closing = f"(?:{hebrew}{marks}'{marks}(?!{follows}))"
    # A joining sign is taken with what stands before it, and only if the right thing follows.
    unit = (
        f'(?:{hebrew}{marks}"{marks}(?={hebrew})'
        f"|(?!{closing}){letter}{marks}(?:{mid_letter}{marks}(?={letter}))?{p}"
        f"|{digit}{marks}(?:{mid_number}{marks}(?={digit}))?{p})"
    )
    katakana = f"(?:[{_class_members(word_classes.KATAKANA)}]{marks})+{p}"
    run = f"(?:{unit}+{p}{closing}?{p}|{closing}|{katakana})"
    more = f"(?<!'){connector}+{p}"
    word = f"{connector}+{p}(?:{run}{more})*{p}{run}?{p}|{run}(?:{more}{run})*{p}(?:{more})?{p}"
    single = f"[{_class_members(word_classes.SINGLE)}]{marks}"
    complex_run = f"(?:[{_class_members(word_classes.COMPLEX)}]{marks})+{p}"
    return f"{word}|{single}|{complex_run}"


ASCII_WORD = re.compile(
    r"[a-z0-9_](?:[a-z0-9_]|(?<=[a-z])[:.'](?=[a-z])|(?<=[0-9])[,;.'](?=[0-9]))*" + POSSESSIVE
)
MAX_SLICE = 64 * 1024
"""Characters matched together where quantifiers remember every step."""


@cache
def _unicode_word() -> re.Pattern[str]:
    """Compile the expression when first used: that takes half a second."""
    return re.compile(word_expression())


CONNECTORS = re.compile(f"[{_class_members(word_classes.CONNECTOR, word_classes.EXTEND)}]*")


def split_words(text: str) -> list[str]:
    """Return the lower-cased words of a text in order; none exceeds MAX_WORD_CHARACTERS."""
    expression = ASCII_WORD if text.isascii() else _unicode_word()
    parts = [fold_case(text)] if POSSESSIVE_WORKS else slice_at_blanks(fold_case(text))
    runs = (word for part in parts for word in expression.findall(part))
    found = [word for word in runs if _has_letter_or_digit(word)]
    if len(text) <= MAX_WORD_CHARACTERS or max(map(len, found), default=0) <= MAX_WORD_CHARACTERS:
        return found
    return [piece for word in found for piece in _cut_word(word)]


def slice_at_blanks(text: str) -> list[str]:
    """Cut a text at blanks into pieces with the same words; a longer run without blanks is cut."""
    found, start = [], 0
    while len(text) - start > MAX_SLICE:
        blank = text.rfind(" ", start, start + MAX_SLICE)
        end = start + MAX_SLICE if blank <= start else blank
        found.append(text[start:end])
        start = end
    return [*found, text[start:]]


def _has_letter_or_digit(word: str) -> bool:
    return word[0].isalnum() or not CONNECTORS.fullmatch(word)


def fold_case(text: str) -> str:
    """Lower-case character by character, so that no length changes and no context matters."""
    if text.isascii():
        return text.lower()
    # These two alone depend on context or become longer in full Unicode lower-casing.
    return text.replace("\u0130", "i").replace("\u03a3", "\u03c3").lower()


def _cut_word(word: str) -> list[str]:
    starts = range(0, len(word), MAX_WORD_CHARACTERS)
    return [word[start : start + MAX_WORD_CHARACTERS] for start in starts]
