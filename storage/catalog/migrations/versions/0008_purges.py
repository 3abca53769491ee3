"""what was purged for good, and bytes that nothing refers to"""

from alembic import op
import sqlalchemy as sa

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OPEN = sa.text("finished_us IS NULL")


def upgrade() -> None:
    op.create_table(
        "purges",
        sa.Column("id", Id, nullable=False),
        sa.Column("kind", Key, nullable=False),
        sa.Column("uuid", Key, nullable=False),
        sa.Column("version", Key, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("origin", Key, nullable=False),
        sa.Column("digest", Key, nullable=False),
        sa.Column("event_id", Key, nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("finished_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_purges")),
        sa.UniqueConstraint("kind", "uuid", "version", name=op.f("uq_purges_kind_uuid_version")),
    )
    op.create_index("ix_purges_kind_created_us", "purges", ["kind", "created_us"])
    op.create_index(
        "ix_purges_open", "purges", ["created_us"], sqlite_where=OPEN, postgresql_where=OPEN
    )
    op.create_table(
        "purge_replicas",
        sa.Column("purge_id", Id, nullable=False),
        sa.Column("replica", Key, nullable=False),
        sa.Column("marked_us", sa.BigInteger(), nullable=True),
        sa.Column("erased_us", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["purge_id"], ["purges.id"], name=op.f("fk_purge_replicas_purge_id")
        ),
        sa.PrimaryKeyConstraint("purge_id", "replica", name=op.f("pk_purge_replicas")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "condemned",
        sa.Column("replica", Key, nullable=False),
        sa.Column("sha256", Key, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("replica", "sha256", name=op.f("pk_condemned")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_condemned_at_us", "condemned", ["at_us"])
