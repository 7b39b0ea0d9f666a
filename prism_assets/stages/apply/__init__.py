"""Apply: writes table files to PostgreSQL."""
