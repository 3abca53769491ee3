"""tokens of grants: when an application last used what somebody let it have"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_refresh_tokens_grant_id", "refresh_tokens", ["grant_id"])
