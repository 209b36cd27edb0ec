-- Give back a claimed token: end its lease and, after an engine error, count the error and delay the next claim.
-- KEYS     as in store.lua   KEYS[9] engine errors of tokens without a claim in the state (hash)
-- ARGV[4]  node   ARGV[5] path   ARGV[6] owner of the lease
-- ARGV[7..] delays in ms before each further try; none: nothing is counted and the token may be claimed at once
-- RETURNS  the number of engine errors; 0: nothing was counted, or the token no longer belongs to the owner
-- A crash after this: the sweeper sends the token when its delay is over.
local ERRORS_EXPIRE = 86400000

local function count_unloaded()
  local field = ARGV[5] .. '|' .. ARGV[4]
  local count = (tonumber(redis.call('HGET', KEYS[9], field)) or 0) + 1
  redis.call('HSET', KEYS[9], field, count)
  redis.call('PEXPIRE', KEYS[9], ERRORS_EXPIRE)
  return count
end

verbs.retry = function()
  local counts = ARGV[7] ~= nil
  if not store.open() then return counts and count_unloaded() or 0 end
  local node, path = tonumber(ARGV[4]), ARGV[5]
  local name = 'c' .. path .. '|' .. text(node)
  local claim = store.get(name)
  local live = store.get('s' .. path) and store.get('l' .. path .. '|' .. text(node))
  if meta.f or (claim and claim.u and claim.u > now and claim.o ~= ARGV[6]) then return 0 end
  if not live then
    -- The token that expires a join is not live before its result is applied.
    local open = counts and store.get('s' .. path) and not act.is_done(path, node)
    return open and count_unloaded() or 0
  end
  if not claim then
    if not counts then return 0 end
    act.count_claim(path, node, claim)
    if meta.p then
      meta.pc = meta.pc + 1
      changed['!'] = true
    end
  end
  local errors = (claim and claim.e or 0) + (counts and 1 or 0)
  local delay = counts and tonumber(ARGV[6 + errors]) or 0
  local leased = claim and claim.u
  store.put(name, {
    n = claim and claim.n or 0,
    u = delay > 0 and now + delay or nil,
    e = errors > 0 and errors or nil,
    b = leased and (claim.b or 0) + 1 or claim and claim.b or nil,
  })
  held[act.member(path, node)] = now + delay + LEASE - (meta.o or 0)
  store.flush(true)
  return counts and errors or 0
end
