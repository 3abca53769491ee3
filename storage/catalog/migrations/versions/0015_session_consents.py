"""session consents: which applications a person let in during one browser session"""

import sqlalchemy as sa

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
locks = "sessions, while a column with a constant default is added: it is short"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("consents", sa.Text(), nullable=False, server_default="{}"))
