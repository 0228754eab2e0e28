"""Alembic migrations: one line of versions for the API database, one for cells."""
