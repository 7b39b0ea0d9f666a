"""Topics of a real broker as sources of tables."""
