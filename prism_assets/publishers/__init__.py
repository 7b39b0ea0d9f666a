"""Publishers show the partitions of tables to readers. Each publisher serves one catalog."""
