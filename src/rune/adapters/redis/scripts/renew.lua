-- Verify and extend a lease.
-- KEYS     as in store.lua
-- ARGV[4]  node   ARGV[5] path   ARGV[6] number of the fence
-- RETURNS  1, or 0: lost, expired, of another server run, or of a token that lost a race, whose lease ends at once
-- A crash after this: the lease expires.
verbs.renew = function()
  if not store.open() then return 0 end
  local name = 'c' .. ARGV[5] .. '|' .. ARGV[4]
  local claim = store.get(name)
  if not claim or claim.n ~= tonumber(ARGV[6]) or not claim.u or claim.u <= now then return 0 end
  local pointless = act.is_pointless(tonumber(ARGV[4]), ARGV[5])
  local until_when = pointless and now or now + LEASE
  store.write(name).u = until_when
  held[ARGV[3] .. '|' .. ARGV[4] .. '|' .. ARGV[5]] = until_when - (meta.o or 0)
  store.flush(true)
  return pointless and 0 or 1
end
