"""The journal, blobs, library, retention and credentials in PostgreSQL, for any number of processes at once."""
