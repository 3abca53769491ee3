"""Patterns in Lucene's syntax, out of the one reading of them that every engine shares.

What the reader of `storage/query/patterns.py` understood is written down again: Lucene's own
reading differs from release to release in escapes, and in what letter case means beside them.
"""

import re

from storage.query.clauses import Regexp, Wildcard
from storage.query.patterns import regexp_to_re2, wildcard_pieces, wildcard_verbatim

NOTHING = r"[^\x{0}-\x{10FFFF}]"
"""As the shared reader writes down what nothing fits; Lucene has a sign for it."""
FLAGS = "EMPTY"
"""The only optional operators that the patterns of this module use."""

POINT = re.compile(r"\\x\{([0-9a-fA-F]+)\}")
BLANK = re.compile(r"\\([tnr])")
BLANKS = {"t": "\t", "n": "\n", "r": "\r"}


def lucene_regexp(told: Regexp) -> str:
    """The expression, without operators that flags or case could change."""
    shared = regexp_to_re2(told.pattern, told.operators, case_insensitive=told.case_insensitive)
    marked = shared.replace(NOTHING, "#").replace("(?:", "(")
    marked = BLANK.sub(lambda found: BLANKS[found[1]], marked)
    return POINT.sub(lambda found: _literal(chr(int(found[1], 16))), marked)


def _literal(character: str) -> str:
    """Signs are escaped; before a letter a backslash would mean a class."""
    plain = not character.isascii() or character.isalnum() or not character.isprintable()
    return character if plain else "\\" + character


def lucene_wildcard(told: Wildcard) -> str:
    """The pattern, with a backslash only where it matters: what it stands before keeps its case."""
    return "".join(
        character if special else wildcard_verbatim(character)
        for character, special in wildcard_pieces(told.pattern)
    )
