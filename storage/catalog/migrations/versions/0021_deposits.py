"""deposits: bundles of upload areas; areas, tasks and bundles by owner"""

import sqlalchemy as sa

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
locks = "tasks and bundles, against writes, while indexes of their authors are made: 1 s a million"

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NOT_DELETED, UNFINISHED = sa.text("state <> 'DELETED'"), sa.text("state <> 'SUCCEEDED'")


def upgrade() -> None:
    names = ("owner", "area", "replica", "uuid", "version", "state")
    op.create_table(
        "deposits",
        sa.Column("id", Key, nullable=False),
        *(sa.Column(name, Key, nullable=False) for name in names),
        sa.Column("creator_uid", sa.BigInteger(), nullable=False),
        sa.Column("file_count", sa.Integer(), nullable=False),
        sa.Column("entries", sa.Text(), nullable=False),
        sa.Column("faults", sa.Text(), server_default="{}", nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("finished_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deposits")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_deposits_owner_created_us", "deposits", ["owner", "created_us", "id"])
    op.create_index(
        "ix_areas_live",
        "areas",
        ["owner", "created_us", "uuid"],
        sqlite_where=NOT_DELETED,
        postgresql_where=NOT_DELETED,
    )
    op.create_index(
        "ix_tasks_unfinished",
        "tasks",
        ["author", "created_us"],
        sqlite_where=UNFINISHED,
        postgresql_where=UNFINISHED,
    )
    op.create_index("ix_bundles_author", "bundles", ["author", "id"])
