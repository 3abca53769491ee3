"""integrity: when journals and purge markers were last verified"""

from alembic import op
import sqlalchemy as sa

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "verified_objects",
        sa.Column("replica", Key, nullable=False),
        sa.Column("key", Key, nullable=False),
        sa.Column("verified_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("replica", "key", name=op.f("pk_verified_objects")),
        sqlite_with_rowid=False,
    )
