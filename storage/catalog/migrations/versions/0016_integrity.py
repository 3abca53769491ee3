"""integrity: when each object was last verified, what was found damaged, what the scrub read"""

from alembic import op
import sqlalchemy as sa

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None
locks = "presence and blob_replicas, against writes, while indexes are made: 1 s a million"

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    for table in ("blob_replicas", "presence"):
        op.add_column(
            table,
            sa.Column("verified_us", sa.BigInteger(), server_default="0", nullable=False),
        )
    _index("ix_blob_replicas_verified", "blob_replicas", "verified_us", "state = 'present'")
    op.create_index("ix_presence_verified", "presence", ["replica", "verified_us"])
    op.create_table(
        "damaged_objects",
        sa.Column("replica", Key, nullable=False),
        sa.Column("key", Key, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("found_us", sa.BigInteger(), nullable=False),
        sa.Column("tried_us", sa.BigInteger(), nullable=False),
        sa.Column("repaired_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("replica", "key", name=op.f("pk_damaged_objects")),
        sqlite_with_rowid=False,
    )
    _index("ix_damaged_objects_open", "damaged_objects", "tried_us", "repaired_us IS NULL")
    op.create_table(
        "scrubbed",
        sa.Column("replica", Key, nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("objects", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("damaged", sa.BigInteger(), nullable=False),
        sa.Column("repaired", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("replica", "day", name=op.f("pk_scrubbed")),
        sqlite_with_rowid=False,
    )


def _index(name: str, table: str, column: str, where: str) -> None:
    op.create_index(
        name,
        table,
        ["replica", column],
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )
