"""upload areas: what lies in them, and what is on its way into them"""

from alembic import op
import sqlalchemy as sa

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "area_files",
        sa.Column("area", Key, nullable=False),
        sa.Column("name", Key, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("pin", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("sha1", sa.Text(), nullable=True),
        sa.Column("sha256", sa.Text(), nullable=True),
        sa.Column("crc32c", sa.Text(), nullable=True),
        sa.Column("s3_etag", sa.Text(), nullable=True),
        sa.Column("status", Key, nullable=False),
        sa.Column("validation", Key, nullable=False),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("declared", sa.Text(), nullable=True),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("changed_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("area", "name", name=op.f("pk_area_files")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "area_uploads",
        sa.Column("id", Key, nullable=False),
        sa.Column("area", Key, nullable=False),
        sa.Column("name", Key, nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("part_size", sa.BigInteger(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_area_uploads")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_area_uploads_area_name", "area_uploads", ["area", "name"])
    op.create_index("ix_area_uploads_at_us", "area_uploads", ["at_us"])
    op.add_column("areas", sa.Column("granted_us", sa.BigInteger(), nullable=True))
    op.add_column("areas", sa.Column("deleted_us", sa.BigInteger(), nullable=True))
