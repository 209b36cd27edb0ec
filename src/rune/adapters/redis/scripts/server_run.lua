-- Return the number of this server run: the same for all clients, greater than the numbers of earlier runs, even after
-- the data was lost.
-- KEYS[1] where it is stored
-- ARGV[1] run id of the server
-- RETURNS  the number, as a text
-- A crash after this: no effect.
verbs.server_run = function()
  local kept = redis.call('GET', KEYS[1])
  local run, number = (kept or ''):match('^(%x+) (%d+)$')
  if run == ARGV[1] then return number end
  local time = redis.call('TIME')
  local fresh = math.max(time[1] * 100 + math.floor(time[2] / 10000), (tonumber(number) or 0) + 1)
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. string.format('%.0f', fresh))
  return string.format('%.0f', fresh)
end
