"""Sizes of answers that are read into memory; files are streamed, and have none."""

MIB = 1024 * 1024

LARGEST_ANSWER = 72 * MIB
"""A document of metadata may have 64 MiB, and comes within an event."""
LARGEST_DEFINITION = 16 * MIB
SMALL_ANSWER = MIB
"""Of logins, and of errors."""
MOST_VALUES = 2_000_000
"""Values of JSON in one answer; each costs 60 to 230 bytes of memory."""
