"""S3 through obstore, and boto3 for keys that are no paths: where objects lie (keys, manifests) and how they are read and written."""
