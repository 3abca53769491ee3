"""jobs: batches of jobs that were never attempted, by replica"""

from alembic import op
import sqlalchemy as sa

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
locks = "todo, against writes, while an index of jobs never attempted is made: 1 s a million"

FRESH = sa.text("parked_us IS NULL AND attempts = 0")


def upgrade() -> None:
    op.create_index(
        "ix_todo_fresh",
        "todo",
        ["step", "replica", "due_us"],
        sqlite_where=FRESH,
        postgresql_where=FRESH,
    )
