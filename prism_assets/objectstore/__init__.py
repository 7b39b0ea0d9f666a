"""S3 through obstore and boto3: where objects lie (keys, manifests) and how they are read and written."""
