"""Source ``s3``: the pages of a bucket of an S3-compatible store, with the readers that its access files name."""
