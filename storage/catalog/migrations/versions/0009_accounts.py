"""accounts: users, groups, roles, their policies, the audit log"""

from alembic import op
import sqlalchemy as sa

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

NOW = {
    "sqlite": "CAST(strftime('%s', 'now') AS INTEGER) * 1000000",
    "postgresql": "CAST(extract(epoch FROM now()) * 1000000 AS BIGINT)",
}
BUILT_IN = (
    ("group", "user_default"),
    ("role", "user_default"),
    ("role", "store_ingest"),
    ("role", "store_admin"),
)


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("kind", Key, nullable=False),
        sa.Column("id", Key, nullable=False),
        sa.Column("status", Key, server_default="enabled", nullable=False),
        sa.Column("policy", sa.Text(), nullable=True),
        sa.Column("built_in", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("changed_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "id", name=op.f("pk_accounts")),
    )
    op.create_table(
        "memberships",
        sa.Column("member_kind", Key, nullable=False),
        sa.Column("member", Key, nullable=False),
        sa.Column("kind", Key, nullable=False),
        sa.Column("name", Key, nullable=False),
        sa.Column("built_in", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.PrimaryKeyConstraint(
            "member_kind", "member", "kind", "name", name=op.f("pk_memberships")
        ),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_memberships_held", "memberships", ["kind", "name", "member_kind", "member"]
    )
    op.create_table(
        "audit",
        sa.Column("id", Id, nullable=False),
        sa.Column("uuid", Key, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("who", Key, nullable=False),
        sa.Column("what", Key, nullable=False),
        sa.Column("target", Key, nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sa.UniqueConstraint("uuid", name=op.f("uq_audit_uuid")),
    )
    op.create_index("ix_audit_who", "audit", ["who", "id"])
    op.create_index("ix_audit_what", "audit", ["what", "id"])
    op.create_index("ix_audit_at_us", "audit", ["at_us"])
    now = NOW[op.get_bind().dialect.name]
    for kind, name in BUILT_IN:
        op.execute(
            "INSERT INTO accounts (kind, id, built_in, created_us, changed_us)"
            f" VALUES ('{kind}', '{name}', true, {now}, {now})"
        )
    op.execute(
        "INSERT INTO memberships (member_kind, member, kind, name, built_in)"
        " VALUES ('group', 'user_default', 'role', 'user_default', true)"
    )
