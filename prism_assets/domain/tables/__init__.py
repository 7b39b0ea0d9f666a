"""What a table is: its file, its options, and what may become of it."""
