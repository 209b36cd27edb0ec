"""Journal, workflows, blobs, credentials, access control and retention in PostgreSQL, shared by all processes."""
