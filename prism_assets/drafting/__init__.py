"""What a developer does before there is a table: look at a sample of the logs, and draft a table file."""
