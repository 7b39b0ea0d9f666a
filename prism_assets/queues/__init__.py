"""Queues with the notifications of buckets."""
