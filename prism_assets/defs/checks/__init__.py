"""Asset checks: they report what the stages know, and decide nothing."""
