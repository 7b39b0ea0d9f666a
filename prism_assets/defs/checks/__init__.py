"""Asset checks: they report the knowledge of the stages, and decide nothing."""
