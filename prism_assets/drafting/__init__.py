"""Tools before a table exists: look at a sample of logs, draft a table file, and test it."""
