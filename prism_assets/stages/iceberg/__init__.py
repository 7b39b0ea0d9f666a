"""Iceberg: has each table's snapshots list what PostgreSQL says, by one commit of their difference."""
