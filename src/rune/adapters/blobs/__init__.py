"""Blobs outside of the database: in a folder, or in a bucket of anything that speaks S3."""
