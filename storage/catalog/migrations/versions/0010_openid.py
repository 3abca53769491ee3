"""OpenID: clients, grants, refresh tokens, device codes, consents"""

from alembic import op
import sqlalchemy as sa

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "clients",
        sa.Column("id", Key, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret", Key, nullable=True),
        sa.Column("redirect_uris", sa.Text(), nullable=False),
        sa.Column("first_party", sa.Boolean(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clients")),
    )
    op.create_table(
        "grants",
        sa.Column("id", Key, nullable=False),
        sa.Column("client", Key, nullable=False),
        sa.Column("email", Key, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("auth_us", sa.BigInteger(), nullable=False),
        sa.Column("code", Key, nullable=True),
        sa.Column("code_ends_us", sa.BigInteger(), nullable=True),
        sa.Column("redirect_uri", sa.Text(), nullable=True),
        sa.Column("challenge", sa.Text(), nullable=True),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("redeemed_us", sa.BigInteger(), nullable=True),
        sa.Column("revoked_us", sa.BigInteger(), nullable=True),
        sa.Column("ends_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grants")),
        sa.UniqueConstraint("code", name=op.f("uq_grants_code")),
    )
    op.create_index("ix_grants_email_client", "grants", ["email", "client"])
    op.create_index("ix_grants_ends_us", "grants", ["ends_us"])
    op.create_table(
        "refresh_tokens",
        sa.Column("id", Key, nullable=False),
        sa.Column("grant_id", Key, nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("used_us", sa.BigInteger(), nullable=True),
        sa.Column("ends_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refresh_tokens")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_refresh_tokens_ends_us", "refresh_tokens", ["ends_us"])
    op.create_table(
        "device_codes",
        sa.Column("id", Key, nullable=False),
        sa.Column("user_code", Key, nullable=False),
        sa.Column("client", Key, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("state", Key, nullable=False),
        sa.Column("email", Key, nullable=True),
        sa.Column("auth_us", sa.BigInteger(), nullable=True),
        sa.Column("interval_s", sa.Integer(), nullable=False),
        sa.Column("polled_us", sa.BigInteger(), nullable=True),
        sa.Column("ends_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device_codes")),
        sa.UniqueConstraint("user_code", name=op.f("uq_device_codes_user_code")),
    )
    op.create_index("ix_device_codes_ends_us", "device_codes", ["ends_us"])
    op.create_table(
        "consents",
        sa.Column("email", Key, nullable=False),
        sa.Column("client", Key, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("email", "client", name=op.f("pk_consents")),
        sqlite_with_rowid=False,
    )
