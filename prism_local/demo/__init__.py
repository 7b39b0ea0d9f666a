"""A day and a half of realistic logs, and the life of their partitions played through in a minute."""
