"""quota_reservations: room of quotas for uploads that are under way"""

import sqlalchemy as sa

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "quota_reservations",
        sa.Column("id", Key, nullable=False),
        sa.Column("owner", Key, nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("expires_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quota_reservations")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_quota_reservations_expires_us", "quota_reservations", ["expires_us"], unique=False
    )


def downgrade() -> None:
    op.drop_table("quota_reservations")
