-- inspect: the version of the server, and whether it waits for the disk. Changes nothing.
SELECT split_part(current_setting('server_version'), ' ', 1), current_setting('fsync')
