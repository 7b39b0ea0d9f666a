"""The live worker: one long-lived process that makes the rows of new objects readable within seconds."""
