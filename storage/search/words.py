"""Split text into lower-cased Unicode words (UAX #29).

Documents, queries and stored queries are all analysed here, so they always agree. A linear regular
expression implements the standard's rules for words.

Possessive quantifiers keep matching linear in memory; the patterns mean the same without them.
Python 3.11 has them, but before 3.11.5 they sometimes match wrongly or never return.
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

POSSESSIVE_WORKS = sys.version_info >= (3, 11, 5)
POSSESSIVE = "+" if POSSESSIVE_WORKS else ""
"""Suffix of quantifiers that never backtrack."""

ANALYSIS = "words1"
"""Version of this analysis; part of an index's name, since words of two versions do not mix."""

MAX_WORD_CHARACTERS = 255
"""Longer words are cut into pieces of this length, as in the standard analysis."""


WORD_CLASSES: Mapping[str, str] = tomllib.loads(
    Path(__file__).with_name("word_classes.toml").read_text(encoding="utf-8")
)
"""Ranges of code points by the name of their class."""


def _class_members(*names: str) -> str:
    """Return the characters of these classes as the inside of a character class."""
    members = []
    for part in " ".join(WORD_CLASSES[name] for name in names).split():
        first, _, last = part.partition("-")
        members.append(f"\\U{int(first, 16):08x}-\\U{int(last or first, 16):08x}")
    return "".join(members)


def word_expression(p: str = POSSESSIVE) -> str:
    """Return the expression of a word; `p` makes quantifiers possessive, with the same matches."""
    letter = f"[{_class_members('letter', 'hebrew')}]"
    hebrew = f"[{_class_members('hebrew')}]"
    digit = f"[{_class_members('numeric')}]"
    marks = f"[{_class_members('extend')}]*{p}"
    connector = f"(?:[{_class_members('connector')}]{marks})"
    mid_letter = f"[{_class_members('mid_letter', 'mid_both')}']"
    mid_number = f"[{_class_members('mid_number', 'mid_both')}']"
    # After a Hebrew letter an apostrophe is kept; unless a letter follows, it ends the word. No
    # mark follows either: marks that give one back would find that no letter does.
    follows = f"[{_class_members('letter', 'hebrew', 'extend')}]"
    closing = f"(?:{hebrew}{marks}'{marks}(?!{follows}))"
    # A joining sign is taken with what stands before it, and only if the right thing follows.
    unit = (
        f'(?:{hebrew}{marks}"{marks}(?={hebrew})'
        f"|(?!{closing}){letter}{marks}(?:{mid_letter}{marks}(?={letter}))?{p}"
        f"|{digit}{marks}(?:{mid_number}{marks}(?={digit}))?{p})"
    )
    katakana = f"(?:[{_class_members('katakana')}]{marks})+{p}"
    run = f"(?:{unit}+{p}{closing}?{p}|{closing}|{katakana})"
    more = f"(?<!'){connector}+{p}"
    word = f"{connector}+{p}(?:{run}{more})*{p}{run}?{p}|{run}(?:{more}{run})*{p}(?:{more})?{p}"
    single = f"[{_class_members('single')}]{marks}"
    complex_run = f"(?:[{_class_members('complex')}]{marks})+{p}"
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


CONNECTORS = re.compile(f"[{_class_members('connector', 'extend')}]*")


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
