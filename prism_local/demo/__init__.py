"""A day and a half of realistic logs, and the life of their partitions in one minute."""
