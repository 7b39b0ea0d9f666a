"""Asset checks of tables."""
