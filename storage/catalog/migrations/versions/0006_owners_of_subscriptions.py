"""subscriptions are paused, disabled with a reason, and change their secret"""

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing yet."""
