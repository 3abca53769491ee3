"""Alembic's environment: it is run by `storage.catalog.migrate`, inside the connection given."""

from alembic import context

from storage.catalog.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    compare_type=True,
    render_as_batch=connection.dialect.name == "sqlite",
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
