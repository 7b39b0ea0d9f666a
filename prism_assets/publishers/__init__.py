"""Who shows the partitions of tables to readers: each publisher to those of one catalog."""
