"""Doctor: compares what is recorded, stored and shown with the invariants of the protocol, and changes nothing."""
