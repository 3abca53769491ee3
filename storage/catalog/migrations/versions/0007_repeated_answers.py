"""answers that an Idempotency-Key repeats"""

from alembic import op
import sqlalchemy as sa

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "answers",
        sa.Column("owner", key, nullable=False),
        sa.Column("key", key, nullable=False),
        sa.Column("digest", key, nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "key", name=op.f("pk_answers")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_answers_created_us", "answers", ["created_us"], unique=False)
