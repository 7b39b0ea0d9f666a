"""`prism` as the entry point of spark-submit, which takes only names with `.py`. Arguments are those of `prism`."""

from prism_assets.cli import main

main()
