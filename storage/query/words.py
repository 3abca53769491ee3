"""The one analysis of text: Unicode words (UAX #29) that hold a letter or a digit, lower-cased.

Documents, queries and stored queries all go through here, so that none can disagree. A linear
regular expression does what the standard's rules say of words and skips what they say of the rest.
"""

import re
from functools import cache

from storage.query import word_classes as classes
from storage.query.possessive import RIGHT, P

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


def word_expression(p: str = P) -> str:
    """What a word is; `p` makes quantifiers possessive, which must make no difference."""
    letter = f"[{_members(classes.LETTER, classes.HEBREW)}]"
    hebrew, digit = f"[{_members(classes.HEBREW)}]", f"[{_members(classes.NUMERIC)}]"
    marks = f"[{_members(classes.EXTEND)}]*{p}"
    connector = f"(?:[{_members(classes.CONNECTOR)}]{marks})"
    mid_letter = f"[{_members(classes.MID_LETTER, classes.MID_BOTH)}']"
    mid_number = f"[{_members(classes.MID_NUMBER, classes.MID_BOTH)}']"
    # After a Hebrew letter an apostrophe is kept; unless a letter follows, it ends the word. No
    # mark follows either: marks that give one back would find that no letter does.
    follows = f"[{_members(classes.LETTER, classes.HEBREW, classes.EXTEND)}]"
    closing = f"(?:{hebrew}{marks}'{marks}(?!{follows}))"
    # A joining sign is taken with what stands before it, and only if the right thing follows.
    unit = (
        f'(?:{hebrew}{marks}"{marks}(?={hebrew})'
        f"|(?!{closing}){letter}{marks}(?:{mid_letter}{marks}(?={letter}))?{p}"
        f"|{digit}{marks}(?:{mid_number}{marks}(?={digit}))?{p})"
    )
    katakana = f"(?:[{_members(classes.KATAKANA)}]{marks})+{p}"
    run = f"(?:{unit}+{p}{closing}?{p}|{closing}|{katakana})"
    more = f"(?<!'){connector}+{p}"
    word = f"{connector}+{p}(?:{run}{more})*{p}{run}?{p}|{run}(?:{more}{run})*{p}(?:{more})?{p}"
    single = f"[{_members(classes.SINGLE)}]{marks}"
    complex_run = f"(?:[{_members(classes.COMPLEX)}]{marks})+{p}"
    return f"{word}|{single}|{complex_run}"


ASCII_WORD = re.compile(
    r"[a-z0-9_](?:[a-z0-9_]|(?<=[a-z])[:.'](?=[a-z])|(?<=[0-9])[,;.'](?=[0-9]))*" + P
)
SLICE = 64 * 1024
"""Characters looked at together where quantifiers remember every step."""


@cache
def _any_word() -> re.Pattern[str]:
    """Compiled when first needed: that takes half a second, which not every process should wait."""
    return re.compile(word_expression())


CONNECTORS = re.compile(f"[{_members(classes.CONNECTOR, classes.EXTEND)}]*")


def words(text: str) -> list[str]:
    """The words of a text in order, lower-cased; no word is longer than MAX_WORD_CHARACTERS."""
    expression = ASCII_WORD if text.isascii() else _any_word()
    parts = [folded(text)] if RIGHT else slices(folded(text))
    runs = (word for part in parts for word in expression.findall(part))
    found = [word for word in runs if _has_letter_or_digit(word)]
    if len(text) <= MAX_WORD_CHARACTERS or max(map(len, found), default=0) <= MAX_WORD_CHARACTERS:
        return found
    return [piece for word in found for piece in _pieces(word)]


def slices(text: str) -> list[str]:
    """Pieces that end at blanks, with the same words; a longer run without any is cut."""
    found, start = [], 0
    while len(text) - start > SLICE:
        blank = text.rfind(" ", start, start + SLICE)
        end = start + SLICE if blank <= start else blank
        found.append(text[start:end])
        start = end
    return [*found, text[start:]]


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
