-- Version 7: browser sessions. id: digest of the token in the cookie; proof: digest of the API key it was created with.
CREATE TABLE session (
    id         TEXT PRIMARY KEY,
    principal  TEXT NOT NULL,
    proof      BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX session_expires ON session (expires_at);
