-- Browser sessions. id: digest of the token in the cookie; proof: digest of the API key it was created with.

CREATE TABLE session (
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    id         text COLLATE "C" PRIMARY KEY,
    principal  text COLLATE "C" NOT NULL,
    proof      bytea NOT NULL
);
CREATE INDEX session_expires ON session (expires_at);
