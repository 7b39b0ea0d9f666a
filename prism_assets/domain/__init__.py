"""The domain of prism_assets, without any input or output: tables, partitions, plans and the error tree."""
