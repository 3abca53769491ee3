"""login links and personal tokens; audit entries by target"""

import sqlalchemy as sa

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None
locks = "audit, against writes, while an index of its targets is made: 1 s a million"


def upgrade() -> None:
    key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "login_links",
        sa.Column("id", key, nullable=False),
        sa.Column("email", key, nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("ends_us", sa.BigInteger(), nullable=False),
        sa.Column("used_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_login_links")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_login_links_email", "login_links", ["email"])
    op.create_index("ix_login_links_ends_us", "login_links", ["ends_us"])
    op.add_column("grants", sa.Column("name", sa.Text(), nullable=True))
    op.add_column("grants", sa.Column("used_us", sa.BigInteger(), nullable=True))
    op.create_index("ix_audit_target", "audit", ["target", "id"])
