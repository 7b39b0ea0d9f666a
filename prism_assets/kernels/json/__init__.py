"""Lines of JSON to typed rows: by columns where that gives the same, line by line otherwise."""
