"""collections: versioned, private sets of links"""

from alembic import op
import sqlalchemy as sa

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
locks = "todo, against writes, while an index of its few waiting rows is made: it is short"

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
RESERVED = sa.text("published_us IS NULL")
WAITING = sa.text("waits_for IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "collections",
        sa.Column("id", Id, nullable=False),
        sa.Column("uuid", Key, nullable=False),
        sa.Column("version", Key, nullable=False),
        sa.Column("digest", Key, nullable=False),
        sa.Column("origin", Key, nullable=False),
        sa.Column("owner", Key, nullable=False),
        sa.Column("parent", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("event_id", Key, nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("published_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_collections")),
        sa.UniqueConstraint("uuid", "version", name=op.f("uq_collections_uuid_version")),
    )
    op.create_index(
        "ix_collections_reserved",
        "collections",
        ["created_us"],
        sqlite_where=RESERVED,
        postgresql_where=RESERVED,
    )
    op.create_table(
        "link_segments",
        sa.Column("id", Id, nullable=False),
        sa.Column("links", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_link_segments")),
    )
    op.create_table(
        "collection_segments",
        sa.Column("collection_id", Id, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("segment_id", Id, nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"],
            ["collections.id"],
            name=op.f("fk_collection_segments_collection_id"),
        ),
        sa.ForeignKeyConstraint(
            ["segment_id"], ["link_segments.id"], name=op.f("fk_collection_segments_segment_id")
        ),
        sa.PrimaryKeyConstraint(
            "collection_id", "position", name=op.f("pk_collection_segments")
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "owned",
        sa.Column("owner", Key, nullable=False),
        sa.Column("uuid", Key, nullable=False),
        sa.Column("version", Key, nullable=False),
        sa.PrimaryKeyConstraint("owner", "uuid", "version", name=op.f("pk_owned")),
        sqlite_with_rowid=False,
    )
    op.add_column("todo", sa.Column("waits_for", Key, nullable=True))
    op.create_index(
        "ix_todo_waits_for",
        "todo",
        ["waits_for"],
        sqlite_where=WAITING,
        postgresql_where=WAITING,
    )
