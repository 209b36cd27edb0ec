-- Ask for the right to fold an execution.
-- KEYS     as in store.lua, and KEYS[6] the lease of the fold
-- ARGV[4]  who asks   ARGV[5] for how many ms   ARGV[6] 1: the state that is there is behind the journal and is dropped
-- RETURNS  THERE: there is a state; the time in ms: it is yours; HELD: somebody else is at it
-- A crash behind this: the lease runs out.
verbs.fold = function()
  if store.open() and ARGV[6] ~= '1' then return 'THERE' end
  if not redis.call('SET', KEYS[6], ARGV[4], 'NX', 'PX', tonumber(ARGV[5])) then return 'HELD' end
  redis.call('DEL', KEYS[1]) -- from here to the last piece every verb waits, so none changes what is being replaced
  return string.format('%.0f', store.clock())
end
