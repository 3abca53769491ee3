"""How much a record may hold. Whoever's rights are asked about pays for all of it at once."""

MAX_ID = 128
"""Characters of an id (interface 5)."""
GROUPS_PER_USER = 100
ROLES_EACH = 50
"""Of one user or group."""
NAMED_AT_ONCE = 1_000
"""Records that one change may name."""
AUDITED_NAMES = 1_000
"""Of the members that a record had when it was deleted."""
MAX_GRANT = 128
"""Characters of the id of a login."""
ASKED_LENGTH = 2_048
"""Characters of one action or resource that is evaluated."""
ASKED_EACH = 100
"""Actions, and resources, of one evaluation …"""
ASKED_AT_ONCE = 1_000
"""… and both multiplied."""
ASKED_GROUPS = 1_000
"""Groups that a token claims: more than one of its size can name in e-mail addresses."""
CONTEXT_KEYS = 50
"""Of one evaluation …"""
CONTEXT_VALUES = 100
"""… and of one key."""
