"""An exhaustive exploration of the protocol, step by step as the product does them, and without any I/O."""
