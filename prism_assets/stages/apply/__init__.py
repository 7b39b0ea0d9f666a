"""Apply: PostgreSQL takes over what table files say."""
