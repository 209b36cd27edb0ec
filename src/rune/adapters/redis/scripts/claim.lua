-- Claim a token, or several of the execution at once.
-- KEYS     as in store.lua
-- ARGV[4..]  each of the layout CLAIM, see constants.py; token: as it is sent (msgpack)
-- RETURNS  reply whose last part is verdict, token (false: as it was sent), number of the fence, whether it was
--          claimed before, due time of the wait that ended, whether the execution was rebuilt, if it is the only
--          token how many items have failed, when the first party of its join arrived, how often it was given back;
--          for several tokens a list of these; or FOLD
-- A crash after this: the lease expires and the sweeper sends the token again.

-- Translation of rune.core.execution.control.claim_verdict.
local function claim_verdict(node, path, live, want)
  if meta.f then return 'void' end
  if not store.get('s' .. path) then return act.started(path) and 'done' or 'unknown' end
  if want[CLAIM.fate] == 'expire' then
    local timeout, since = act.join_waits(path, node)
    if meta.p or not since or timeout < 0 then return 'done' end
    return since + timeout + act.paused_since(since) > now and 'done' or 'run'
  end
  if not live then return act.is_done(path, node) and 'done' or 'unknown' end
  if live.w or (live.t or 1) ~= want[CLAIM.attempt] or (live.m or false) ~= want[CLAIM.resumed] then return 'done' end
  if meta.p and not live.k then store.write('l' .. path .. '|' .. text(node)).k = true end
  if live.k then return 'parked' end
  local runs = not live.f or live.f == 'overdue'
  return runs and act.is_pointless(node, path) and 'cancelled' or 'run'
end

-- How often a worker gave the token of the last lease back.
local given_back = 0

-- Return the verdict, the number of the lease if there is one, and whether the token was claimed before.
local function take_lease(node, path, mine, verdict, want)
  local name = 'c' .. path .. '|' .. text(node)
  local claim = store.get(name)
  if not claim and meta.m and mine[TOKEN.fate] == 'run' and meta.c >= meta.m then
    act.hold_back(path, node, mine)
    return 'held back', false, false
  end
  if claim and claim.u and claim.u > now then return 'held', false, true end
  act.count_claim(path, node, claim)
  given_back = claim and claim.b or 0
  if not want[CLAIM.leased] and not claim then
    store.put(name, { n = 0 })
    return verdict, false, false
  end
  -- From the time instead of a counter: an unloaded execution would restart its counter, and fences must never repeat.
  local number = math.max(store.moment(), claim and claim.n + 1 or 0)
  store.put(name, { n = number, u = now + LEASE, o = want[CLAIM.owner], e = claim and claim.e, b = claim and claim.b })
  held[act.member(path, node)] = now + LEASE - (meta.o or 0)
  return verdict, number, claim and true or false
end

local function differs(token, other)
  for i = 1, #token do
    if token[i] ~= other[i] then return token end
  end
  return false
end

local function claim_one(want)
  local node, path, mine = want[CLAIM.node], want[CLAIM.path], want[CLAIM.token]
  local live = store.get('s' .. path) and store.get('l' .. path .. '|' .. text(node))
  if live then
    store.send(path, node, live)
    mine, emitted = emitted[1], {}
  end
  given_back = 0
  local verdict, number, again, due = claim_verdict(node, path, live, want), false, false, false
  if verdict == 'run' or verdict == 'cancelled' then
    verdict, number, again = take_lease(node, path, mine, verdict, want)
    due = live and live.m and verdict ~= 'held' and verdict ~= 'held back' and store.get('w' .. path .. '|' .. text(node))
    if due then store.drop('w' .. path .. '|' .. text(node)) end
  end
  local alone = path == '' and live and store.get('s').c == 1 and not meta.u and not meta.f and (meta.v or 0) or false
  local joined = live and #mine[TOKEN.arrived] > 0 and store.get('b' .. path .. '|' .. text(node))
  local other = differs(mine, want[CLAIM.token])
  return { verdict, other, number, again, due or false, meta.rb or false, alone, joined and joined.f or false,
    given_back }
end

verbs.claim = function()
  local wants, fields, count = {}, { '!' }, 1
  for i = 4, #ARGV do
    local want = cmsgpack.unpack(ARGV[i])
    local name = want[CLAIM.path] .. '|' .. text(want[CLAIM.node])
    fields[count + 1], fields[count + 2], fields[count + 3] = 's' .. want[CLAIM.path], 'l' .. name, 'c' .. name
    count = count + 3
    wants[i - 3] = want
  end
  if not store.open(fields) then return 'FOLD' end
  local found = {}
  for i = 1, #wants do found[i] = claim_one(wants[i]) end
  store.flush(true)
  return store.reply('ok', #wants == 1 and found[1] or found)
end
