"""deliveries: the state before its owner resent one; replays by subscription"""

from alembic import op
import sqlalchemy as sa

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None
locks = "replays, against writes, while its index is made: it is short"

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("deliveries", sa.Column("resent_from", Key, nullable=True))
    op.create_index(
        "ix_replays_latest", "replays", ["subscription_id", "created_us"], unique=False
    )
