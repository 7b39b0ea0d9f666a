"""Join tables: changes, the records that they make, and folds."""
