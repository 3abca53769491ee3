"""tokens of grants: when an application last used a user's consent"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None
locks = "refresh_tokens, against writes, while an index of their grants is made: it is short"


def upgrade() -> None:
    op.create_index("ix_refresh_tokens_grant_id", "refresh_tokens", ["grant_id"])
