"""events are journalled: where the line of each lies"""

from alembic import op
import sqlalchemy as sa

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
locks = "events, against writes, while an index of their times is made: 1 s a million"

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("events", sa.Column("byte_offset", sa.BigInteger(), nullable=True))
    op.add_column("events", sa.Column("byte_size", sa.BigInteger(), nullable=True))
    op.create_index(
        "ix_events_replica_seq_us_seq", "events", ["replica", "seq_us", "seq"], unique=False
    )
    op.create_table(
        "journals",
        sa.Column("id", Id, nullable=False),
        sa.Column("replica", Key, nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("tier", sa.Integer(), nullable=False),
        sa.Column("state", Key, nullable=False),
        sa.Column("size", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journals")),
        sa.UniqueConstraint(
            "replica",
            "first_seq",
            "last_seq",
            "generation",
            name=op.f("uq_journals_replica_first_seq_last_seq_generation"),
        ),
    )
    _index("ix_journals_current", "journals", ["replica", "last_seq"], "state = 'current'")
    _index("ix_journals_tier", "journals", ["replica", "tier", "first_seq"], "state = 'current'")
    _index("ix_journals_other", "journals", ["replica", "at_us"], "state <> 'current'")
    op.create_table(
        "replays",
        sa.Column("id", Key, nullable=False),
        sa.Column("subscription_id", Id, nullable=False),
        sa.Column("replica", Key, nullable=False),
        sa.Column("next_seq", sa.BigInteger(), nullable=False),
        sa.Column("end_seq", sa.BigInteger(), nullable=False),
        sa.Column("deliveries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("finished_us", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name=op.f("fk_replays_subscription_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replays")),
    )
    _index("uq_replays_open", "replays", ["subscription_id"], "finished_us IS NULL", unique=True)
    op.create_index("ix_presence_arrived", "presence", ["replica", "kind", "at_us"])


def _index(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    op.create_index(
        name,
        table,
        columns,
        unique=unique,
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )
