"""S3 through obstore and boto3: places of objects (keys, manifests), and how to read and write them."""
