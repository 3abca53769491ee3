"""accounts: users, groups, roles, their policies, the audit log"""

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
