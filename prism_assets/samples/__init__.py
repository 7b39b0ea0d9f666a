"""What a developer does with a sample of logs before there is a table: look at it, and draft a table file."""
