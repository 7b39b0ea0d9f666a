"""What prism_assets is about, without any input or output: tables, partitions, plans and the error tree."""
