"""Message queues that carry the notifications of buckets."""
