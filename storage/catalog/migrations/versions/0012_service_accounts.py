"""service accounts: registered keys"""

from alembic import op
import sqlalchemy as sa

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "service_keys",
        sa.Column("email", Key, nullable=False),
        sa.Column("kid", Key, nullable=False),
        sa.Column("jwk", sa.Text(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("email", "kid", name=op.f("pk_service_keys")),
        sqlite_with_rowid=False,
    )
