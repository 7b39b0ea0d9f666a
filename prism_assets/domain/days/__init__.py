"""Days of tables: their states, and what catalogs show of them."""
