"""A day and a half of realistic logs, flat and nested, and the life of their partitions in one minute."""
