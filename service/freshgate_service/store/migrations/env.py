"""What Alembic runs to render the migrations. It never connects: see `migrate`."""

from alembic import context

context.configure(dialect_name="postgresql", version_table_schema="freshgate")
context.run_migrations()
