"""logins: sessions, passwords, failed tries, upstream logins"""

from alembic import op
import sqlalchemy as sa

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "sessions",
        sa.Column("id", key, nullable=False),
        sa.Column("email", key, nullable=False),
        sa.Column("provider", key, nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("seen_us", sa.BigInteger(), nullable=False),
        sa.Column("idle_us", sa.BigInteger(), nullable=False),
        sa.Column("ends_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_email", "sessions", ["email"], unique=False)
    op.create_index("ix_sessions_ends_us", "sessions", ["ends_us"], unique=False)
    op.create_table(
        "passwords",
        sa.Column("email", key, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("changed_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("email", name=op.f("pk_passwords")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tries",
        sa.Column("who", key, nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("last_us", sa.BigInteger(), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("who", name=op.f("pk_tries")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tries_last_us", "tries", ["last_us"], unique=False)
    op.create_table(
        "upstream_logins",
        sa.Column("id", key, nullable=False),
        sa.Column("provider", key, nullable=False),
        sa.Column("browser", key, nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("ends_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_upstream_logins")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_upstream_logins_ends_us", "upstream_logins", ["ends_us"], unique=False)
    op.create_table(
        "rates",
        sa.Column("who", key, nullable=False),
        sa.Column("full_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("who", name=op.f("pk_rates")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_rates_full_us", "rates", ["full_us"], unique=False)
