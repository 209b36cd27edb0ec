-- server: the version of the server as a number, and how the database is encoded. Changes nothing.
SELECT current_setting('server_version_num')::integer, current_setting('server_encoding')
