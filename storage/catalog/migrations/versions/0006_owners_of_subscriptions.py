"""subscriptions are paused, disabled with a reason, and change their secret; deliveries expire"""

from alembic import op
import sqlalchemy as sa

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
locks = "deliveries, against writes, while seven indexes of them are made: 6 s a million"


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
    # Until now subscribers were notified even if an engine had refused the document.
    told: sa.Column[bool] = sa.Column("told", sa.Boolean(), nullable=False, server_default=sa.text("true"))
    op.add_column("documents", told)
    op.drop_index("ix_deliveries_latest", table_name="deliveries")
    _index("ix_deliveries_latest", ["subscription_id", "created_us", "id"])
    _index(
        "ix_deliveries_kind", ["subscription_id", "state", "event_type", "created_us", "id"]
    )
    _index("ix_deliveries_bundle", ["subscription_id", "bundle_uuid", "created_us", "id"])
    _index("ix_deliveries_held", ["subscription_id", "id"], f"state = 'pending' AND due_us >= {2**60}")
    _index(
        "ix_deliveries_given_up",
        ["subscription_id", "finished_us"],
        "state = 'failed' AND payload <> ''",
    )
    _index("ix_deliveries_settled", ["finished_us"], "state NOT IN ('pending', 'failed')")
    _index("ix_deliveries_failed", ["finished_us"], "state = 'failed'")
    _index("ix_subscriptions_deleted", ["deleted_us"], "deleted_us IS NOT NULL", "subscriptions")


def _index(
    name: str, columns: list[str], where: str | None = None, table: str = "deliveries"
) -> None:
    only = None if where is None else sa.text(where)
    op.create_index(
        name, table, columns, unique=False, sqlite_where=only, postgresql_where=only
    )
