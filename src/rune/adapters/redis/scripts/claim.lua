-- Ask to run a token.
-- KEYS     as in store.lua
-- ARGV[4]  node, path, fate, attempt, resumed, owner, leased, and the token itself as it is sent (msgpack)
-- RETURNS  reply whose last part is verdict, token, number of the fence, whether it was claimed before, due time of the
--          wait that is over, whether the execution was read back, whether the token is all there is, incarnation; or FOLD
-- A crash behind this: a lease that runs out, and the sweeper sends the token again.
-- include: store.lua
-- include: transition.lua
-- include: deciding.lua
-- include: holding.lua
if not store.open() then return 'FOLD' end
local want = cmsgpack.unpack(ARGV[4])
local node, path, fate = want[1], want[2], want[3]
local name = path .. '|' .. node
local live = store.get('s' .. path) and store.get('l' .. name)

local function touch()
  if meta.f then return 'void' end
  if not store.get('s' .. path) then return act.started(path) and 'done' or 'unknown' end
  if fate == 'expire' then
    return (meta.p or act.is_done(path, node) or live) and 'done' or 'run'
  end
  if not live then return act.is_done(path, node) and 'done' or 'unknown' end
  if live.w or (live.t or 1) ~= want[4] or (live.m or false) ~= want[5] then return 'done' end
  if meta.p and not live.k then store.write('l' .. name).k = true end
  if live.k then return 'parked' end
  return fate == 'run' and act.is_pointless(node, path) and 'cancelled' or 'run'
end

-- The token as the state has it.
local mine = want[8]
if live then
  store.send(path, node, live)
  mine, emitted = emitted[1], {}
end

local function answer(verdict, number, again, due)
  store.flush(true)
  local alone = path == '' and live and store.get('s').c == 1 and not meta.u and not meta.f
  return store.reply('ok', { verdict, mine, number, again, due, meta.rb or false, alone and true or false, meta.i })
end

local verdict = touch()
if verdict ~= 'run' and verdict ~= 'cancelled' then return answer(verdict, false, false, false) end
local claim = store.get('c' .. name)
if not claim and meta.m and mine[6] == 'run' and meta.c >= meta.m then
  act.hold_back(path, node, mine)
  return answer('held back', false, false, false)
end
if claim and claim.u and claim.u > now then return answer('held', false, true, false) end
act.take_place(path, node, claim)
local due = live and live.m and store.get('w' .. name) or false
if due then store.drop('w' .. name) end
if not want[7] and not claim then
  store.put('c' .. name, { n = 0 })
  return answer(verdict, false, false, due)
end
local time = redis.call('TIME') -- an execution that slept begins to count anew; fences must not come again
meta.n = math.max((meta.n or 0) + 1, time[1] * 1000000 + time[2])
changed['!'] = true
store.put('c' .. name, { n = meta.n, u = now + LEASE, o = want[6] })
held[act.member(path, node)] = now + LEASE - (meta.o or 0)
return answer(verdict, meta.n, claim and true or false, due)
