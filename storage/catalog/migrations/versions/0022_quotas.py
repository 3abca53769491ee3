"""quotas: limits by owner and group, and what each uses"""

import sqlalchemy as sa

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    for name, is_counted in (("quotas", False), ("quota_usage", True)):
        op.create_table(
            name,
            sa.Column("kind", Key, nullable=False),
            sa.Column("name", Key, nullable=False),
            sa.Column("bytes", sa.BigInteger(), nullable=not is_counted),
            sa.Column("files", sa.BigInteger(), nullable=not is_counted),
            sa.PrimaryKeyConstraint("kind", "name", name=op.f(f"pk_{name}")),
            sqlite_with_rowid=False,
        )


def downgrade() -> None:
    for name in ("quota_usage", "quotas"):
        op.drop_table(name)
