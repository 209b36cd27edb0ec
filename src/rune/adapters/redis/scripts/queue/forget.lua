-- Remove idle consumers without pending entries from the group of a stream.
-- KEYS[1] the stream
-- ARGV[1] unused  ARGV[2] the group  ARGV[3] minimum idle time in ms
-- RETURNS  the number of removed consumers
-- Atomic, because removing a consumer drops its pending entries: none may be delivered between check and removal. A
-- consumer that is alive is added again by its next read.
verbs.forget = function()
  local known = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[2])
  if known.err then return 0 end
  local gone = 0
  for _, consumer in ipairs(known) do
    local info = {}
    for i = 1, #consumer, 2 do info[consumer[i]] = consumer[i + 1] end
    if info.pending == 0 and info.idle >= tonumber(ARGV[3]) then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[2], info.name)
      gone = gone + 1
    end
  end
  return gone
end
