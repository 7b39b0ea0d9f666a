"""Tables: files, definitions, options, and changes."""
