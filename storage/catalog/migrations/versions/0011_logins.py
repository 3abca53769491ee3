"""logins: sessions, passwords, failed tries, upstream logins"""

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
