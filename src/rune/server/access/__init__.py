"""Authentication by key or session, permissions, and limits on failed logins."""
