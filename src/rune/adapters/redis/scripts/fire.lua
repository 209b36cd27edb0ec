-- Fire the due timers of one execution.
-- KEYS     as in store.lua
-- ARGV[4]  maximum number   ARGV[8] the end of an execution that timed out   ARGV[9] ms that a rebuild may take
-- RETURNS  reply whose last part lists the timers in the layout FIRED, see constants.py; or FOLD: the
--          execution is postponed while it is rebuilt, and due again if that fails
-- A crash after this: resumed tokens are in no queue; the sweeper sends them. Timers without a token stay armed.
verbs.fire = function()
  local opened = store.open()
  local rings = redis.call('ZSCORE', KEYS[4], ARGV[3])
  if not rings or tonumber(rings) > store.clock() then return cmsgpack.pack({ 'ok', now, {}, false, false, {} }) end
  if not opened then
    redis.call('ZADD', KEYS[4], now + tonumber(ARGV[9]), ARGV[3])
    return 'FOLD'
  end
  at = now
  local found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[4]))
  local fired = {}
  for i = 1, #found, 2 do
    local timer = found[i]
    local kind, node, path, number = timer:match('^(%a)|(%-?%d+)|([%d.]*)|(%d+)$')
    local chore = kind == 'u' or kind == 'x'
    node = tonumber(node)
    timers[timer] = false
    act.fire(kind, node, path, chore and number or tonumber(number), timer)
    if kind == 'w' and #emitted > 0 then store.put('w' .. path .. '|' .. text(node), tonumber(found[i + 1])) end
    for _, each in ipairs(emitted) do act.drop_claim(each[TOKEN.path], each[TOKEN.node]) end
    local late = kind == 'l' and not timers[timer] and not meta.lt
    if late or #emitted + (finish and 1 or 0) > 0 and kind ~= 'w' and kind ~= 'r' and not chore then timers[timer] = now + LEASE end
    local items = store.failures()
    fired[#fired + 1] = { chore and 'w|-1||0' or timer, tonumber(found[i + 1]), emitted, finish, items }
    emitted, finish = {}, false
  end
  if not next(timers) then timers['x'] = false end
  store.flush()
  for _, each in ipairs(fired) do each[FIRED.emitted] = store.deliver(each[FIRED.emitted]) end
  return store.reply('ok', fired)
end
