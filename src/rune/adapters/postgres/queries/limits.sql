-- limits: all limits on starts.
SELECT subject, limits FROM start_limit ORDER BY subject
