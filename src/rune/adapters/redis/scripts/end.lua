-- Drop the state of an ended execution. The journal records the end. An execution without a state may have ended before
-- the process that accepted it installs its state, which is marked.
-- KEYS[1] fields  KEYS[2] timers  KEYS[3] listeners  KEYS[4] due executions, KEYS[5] leases of the partition
-- KEYS[6] lease of a rebuild in progress, which must not install its state any more  KEYS[7] what it has written
-- KEYS[8] mark that the execution must not be installed from memory
-- KEYS[9] the stream of an entry to delete, if there is one
-- ARGV[1] unused  ARGV[2] unused  ARGV[3] id of the execution
-- ARGV[4] the notification of waiting processes, or nothing: the id alone
-- ARGV[5] node and path of the token that ended it, if its decision was not applied   ARGV[6] the group
-- ARGV[7] the entry
-- RETURNS  1
-- A crash before this: the finish timer fires or the entry is redelivered, and the worker finds the terminal row; the
-- outbox relay finds it too.
verbs['end'] = function()
  if redis.call('UNLINK', KEYS[1]) == 0 then redis.call('SET', KEYS[8], '1', 'PX', MARKED) end
  redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[6], KEYS[7])
  redis.call('ZREM', KEYS[4], ARGV[3])
  if ARGV[5] then redis.call('ZREM', KEYS[5], ARGV[3] .. '|' .. ARGV[5]) end
  if ARGV[7] then
    redis.call('XACK', KEYS[9], ARGV[6], ARGV[7])
    redis.call('XDEL', KEYS[9], ARGV[7])
  end
  redis.call('PUBLISH', store.prefix() .. ':ended', ARGV[4] or ARGV[3])
  return 1
end
