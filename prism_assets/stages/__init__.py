"""The stages of the pipeline: discover, stream, merge, catalog. Each plans, executes, commits, and reports."""
