"""Possessive quantifiers, where this Python's are right.

They keep matching linear in memory; the patterns that use them mean the same without. Python 3.11
has them, but until 3.11.5 they sometimes match what is not there, or never come back.
"""

import sys

RIGHT = sys.version_info >= (3, 11, 5)
P = "+" if RIGHT else ""
"""What stands behind a quantifier that gives nothing back."""
