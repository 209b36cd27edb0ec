"""Blob stores outside the database: a folder, or a bucket of an S3-compatible service."""
