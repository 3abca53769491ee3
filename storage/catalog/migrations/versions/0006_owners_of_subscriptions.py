"""subscriptions are paused, disabled with a reason, and change their secret; deliveries expire"""

from alembic import op
import sqlalchemy as sa

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
locks = "deliveries, against writes, while two indexes of what is settled are made: 1 s a million"


def upgrade() -> None:
    for column in (
        sa.Column("hmac_previous", sa.LargeBinary()),
        sa.Column("hmac_previous_us", sa.BigInteger()),
        sa.Column(
            "state",
            sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
            nullable=False,
            server_default="active",
        ),
        sa.Column("state_reason", sa.Text()),
        sa.Column("state_us", sa.BigInteger()),
        sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("failing_us", sa.BigInteger()),
    ):
        op.add_column("subscriptions", column)
    _index("ix_deliveries_held", ["subscription_id", "id"], f"state = 'pending' AND due_us >= {2**60}")
    _index(
        "ix_deliveries_given_up",
        ["subscription_id", "finished_us"],
        "state = 'failed' AND payload <> ''",
    )
    _index("ix_deliveries_settled", ["finished_us"], "state NOT IN ('pending', 'failed')")


def _index(name: str, columns: list[str], where: str) -> None:
    op.create_index(
        name,
        "deliveries",
        columns,
        unique=False,
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )
