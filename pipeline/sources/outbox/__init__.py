"""A PostgreSQL table in which an application writes its changes, in the transactions of its own data."""
