"""S3 through obstore: where objects lie (keys, manifests) and how they are read and written."""
