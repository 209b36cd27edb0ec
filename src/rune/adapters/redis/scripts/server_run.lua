-- Return the number of this server run: the same for all clients, greater than the numbers of earlier runs, even after
-- the data was lost. Refuse a process of another cluster: it would take the tokens of executions that its journal lacks.
-- KEYS[1] where it is stored   KEYS[2] the journal whose executions these are, and the number of partitions
-- KEYS[3] the database that has the journal, which a copy of it is not
-- ARGV[1] run id of the server   ARGV[2] id of the caller's journal   ARGV[3] its number of partitions
-- ARGV[4] its database; empty: unknown
-- RETURNS  the number, as a text; or an error: OTHER with what is stored, COPY if the database differs
-- A crash after this: no effect.
verbs.server_run = function()
  local journal, partitions = (redis.call('GET', KEYS[2]) or ''):match('^(%S+) (%d+)$')
  if not journal then
    if ARGV[2] ~= '' and ARGV[3] ~= '' then redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. ARGV[3]) end
  elseif (ARGV[2] ~= '' and ARGV[2] ~= journal) or (ARGV[3] ~= '' and ARGV[3] ~= partitions) then
    return redis.error_reply('OTHER ' .. journal .. ' ' .. partitions)
  end
  if (ARGV[4] or '') ~= '' then
    local database = redis.call('GET', KEYS[3])
    if database and database ~= ARGV[4] then return redis.error_reply('COPY the state is that of another database') end
    if not database and ARGV[2] ~= '' and ARGV[3] ~= '' then redis.call('SET', KEYS[3], ARGV[4]) end
  end
  local kept = redis.call('GET', KEYS[1])
  local run, number = (kept or ''):match('^(%x+) (%d+)$')
  if run == ARGV[1] then return number end
  local time = redis.call('TIME')
  local fresh = math.max(time[1] * 100 + math.floor(time[2] / 10000), (tonumber(number) or 0) + 1)
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. string.format('%.0f', fresh))
  return string.format('%.0f', fresh)
end
