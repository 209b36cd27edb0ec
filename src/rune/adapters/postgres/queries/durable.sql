-- durable: makes this connection wait until what it commits is on disk. A server that is set to wait for more keeps
-- doing so. RETURNS nothing of interest. A crash here leaves a connection that nobody has used.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
