"""History: old objects of a table, registered and converted behind all others."""
