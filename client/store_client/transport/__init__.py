"""Asking a store over HTTP: one pooled session that waits, tries again and follows pages.

What an operation is called and takes is known one floor above.
"""

from store_client.transport.policy import Policy
from store_client.transport.session import Session
from store_client.transport.tokens import GivenToken, Tokens

__all__ = ["GivenToken", "Policy", "Session", "Tokens"]
