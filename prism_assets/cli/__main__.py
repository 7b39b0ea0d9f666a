"""`python -m prism_assets.cli` is `prism`."""

from prism_assets.cli import main

main()
