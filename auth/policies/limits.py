"""Caps on policies, and on what is made of them."""

MAX_BYTES = 10 * 1024
"""Interface 5: of a document, written without white space."""
MAX_DEPTH = 8
"""Of nesting; a document that means something has five levels."""
MAX_STATEMENTS = 100
MAX_STARS = 20
"""Of one pattern."""
MAX_ITEMS = 200
"""Actions, resources, or values of a key, in one list."""
MAX_FAULTS = 50
"""Told of one document."""
MAX_VALUES = 1_000
"""Of one variable: each pattern that names it becomes so many."""
MAX_LISTS = 20
"""Places in one document that name a variable of many values: each becomes as many patterns."""
MAX_PATTERNS = 50_000
"""Of one principal, with all values put in: a hundred documents full of them."""
MAX_TABLES = 1024
"""Actions of one principal whose statements are remembered."""
