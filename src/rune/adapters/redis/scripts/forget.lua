-- Take consumers that were not heard of for long, and have nothing in their hands, out of the group of a stream.
-- KEYS[1] the stream
-- ARGV[1] unused  ARGV[2] the group  ARGV[3] for how long, in ms
-- RETURNS  how many were taken out
-- In one act: with the consumer its list of what is pending would go, so nothing may come into it in between. One that
-- lives after all is entered again by its next read.
verbs.forget = function()
  local known = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[2])
  if known.err then return 0 end
  local gone = 0
  for _, consumer in ipairs(known) do
    local told = {}
    for i = 1, #consumer, 2 do told[consumer[i]] = consumer[i + 1] end
    if told.pending == 0 and told.idle >= tonumber(ARGV[3]) then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[2], told.name)
      gone = gone + 1
    end
  end
  return gone
end
