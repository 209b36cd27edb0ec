-- The terminal mark: what was kept of the execution is dropped. The journal has the end, so nothing has to say so here.
-- KEYS[1] fields  KEYS[2] timers  KEYS[3] listeners  KEYS[4] who is due, KEYS[5] leases of the partition
-- KEYS[6] lease of a fold under way, which then must not install what it has read  KEYS[7] what it has written so far
-- KEYS[8] the stream of an entry to let go, if there is one
-- ARGV[1] unused  ARGV[2] unused  ARGV[3] id of the execution
-- ARGV[4] node and path of the token that ended it, if it was not applied   ARGV[5] the group   ARGV[6] the entry
-- RETURNS  1
-- A crash before this: the finish timer rings, or the entry is handed out again, and whoever follows it finds the
-- terminal row; the outbox has it too.
verbs['end'] = function()
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[6], KEYS[7])
  redis.call('ZREM', KEYS[4], ARGV[3])
  if ARGV[4] then redis.call('ZREM', KEYS[5], ARGV[3] .. '|' .. ARGV[4]) end
  if ARGV[6] then
    redis.call('XACK', KEYS[8], ARGV[5], ARGV[6])
    redis.call('XDEL', KEYS[8], ARGV[6])
  end
  redis.call('PUBLISH', store.prefix() .. ':ended', ARGV[3])
  return 1
end
