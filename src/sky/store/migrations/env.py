"""How Alembic runs our steps: on the connection it is handed, inside that connection's transaction."""

from __future__ import annotations

from alembic import context

from sky.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection, target_metadata=metadata, transactional_ddl=True, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
