-- Take the lease to rebuild the state of an execution.
-- KEYS     as in store.lua, and KEYS[6] the lease
-- ARGV[4]  owner   ARGV[5] length of the lease in ms   ARGV[6] 1: the current state lacks facts and is dropped
-- RETURNS  THERE: a state exists; the time in ms: the lease was taken; HELD: another process holds it
-- A crash after this: the lease expires.
verbs.fold = function()
  if store.open() and ARGV[6] ~= '1' then return 'THERE' end
  if not redis.call('SET', KEYS[6], ARGV[4], 'NX', 'PX', tonumber(ARGV[5])) then return 'HELD' end
  -- Without fields every other function waits for the rebuild, so none changes the state that is being replaced.
  redis.call('UNLINK', KEYS[1])
  return string.format('%.0f', store.clock())
end
