"""The HTTP client of the nodes: requests, responses, pagination, authentication, SSRF checks."""
