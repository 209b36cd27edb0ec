-- Verify and extend a lease.
-- KEYS     as in store.lua
-- ARGV[4]  node   ARGV[5] path   ARGV[6] number of the fence
-- RETURNS  1; 0: lost, expired, or of a token that lost a race, whose lease ends at once; -1: there is no state of this
--          server run
-- A crash after this: the lease expires.
verbs.renew = function()
  if not store.open() then return -1 end
  local name, number = 'c' .. ARGV[5] .. '|' .. ARGV[4], tonumber(ARGV[6])
  local claim = store.get(name)
  if not claim or not claim.u or claim.u <= now then return 0 end
  if claim.n ~= number then
    -- A rebuilt lease belongs to the latest of those who renew it.
    if not claim.r or number < claim.n then return 0 end
    claim.n = number
  end
  local pointless = act.is_pointless(tonumber(ARGV[4]), ARGV[5])
  local until_when = pointless and now or now + LEASE
  store.write(name).u = until_when
  held[ARGV[3] .. '|' .. ARGV[4] .. '|' .. ARGV[5]] = until_when - (meta.o or 0)
  store.flush(true)
  return pointless and 0 or 1
end
