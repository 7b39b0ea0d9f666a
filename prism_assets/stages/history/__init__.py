"""History: registers and converts old objects of a table, after all other objects."""
