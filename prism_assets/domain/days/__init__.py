"""Days of tables: their states and publications."""
