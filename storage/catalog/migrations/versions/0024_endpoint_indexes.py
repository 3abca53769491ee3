"""endpoints: indexes of those that fail, and of the subscriptions of each"""

import sqlalchemy as sa

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None
locks = "subscriptions and endpoints, against writes, while indexes are made: 1 s a million"

FAILING = sa.text("failures > 0")


def upgrade() -> None:
    op.create_index(
        "ix_subscriptions_endpoint_id", "subscriptions", ["endpoint_id"], unique=False
    )
    op.create_index(
        "ix_endpoints_failing",
        "endpoints",
        ["failures", "id"],
        unique=False,
        sqlite_where=FAILING,
        postgresql_where=FAILING,
    )


def downgrade() -> None:
    op.drop_index("ix_endpoints_failing", table_name="endpoints")
    op.drop_index("ix_subscriptions_endpoint_id", table_name="subscriptions")
