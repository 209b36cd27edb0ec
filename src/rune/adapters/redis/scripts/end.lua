-- The terminal mark: what was kept of the execution is dropped. The journal has the end, so nothing has to say so here.
-- KEYS[1] fields  KEYS[2] timers  KEYS[3] listeners  KEYS[4] who is due in the partition  KEYS[5] unused
-- KEYS[6] lease of a fold under way, which then must not install what it has read  KEYS[7] what it has written so far
-- ARGV[1] unused  ARGV[2] unused  ARGV[3] id of the execution
-- RETURNS  1
-- A crash before this: the finish timer rings, and whoever follows it finds the terminal row.
verbs['end'] = function()
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[6], KEYS[7])
  redis.call('ZREM', KEYS[4], ARGV[3])
  redis.call('PUBLISH', KEYS[4]:match('^(.-):{') .. ':ended', ARGV[3])
  return 1
end
