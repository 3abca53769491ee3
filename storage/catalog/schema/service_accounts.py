"""Tables of accounts of programs, which sign their own tokens."""

from sqlalchemy import BigInteger, Column, Text

from storage.catalog.schema.base import Key, narrow

service_keys = narrow(
    "service_keys",
    Column("email", Key, primary_key=True),
    Column("kid", Key, primary_key=True),
    Column("jwk", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
"""The list of accounts that are allowed: each has at least one public key, as a JWK; with its last
key an account is gone. What they may do is in the records of users, as for everybody."""
