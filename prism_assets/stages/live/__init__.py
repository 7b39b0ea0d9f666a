"""The live worker: one long-lived process makes rows of new objects readable within seconds."""
