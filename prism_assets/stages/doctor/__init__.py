"""Doctor: checks PostgreSQL, store and catalogs against the invariants of the protocol. Changes nothing."""
