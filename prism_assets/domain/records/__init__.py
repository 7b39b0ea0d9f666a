"""Join tables: changes, records made of them, and folds."""
