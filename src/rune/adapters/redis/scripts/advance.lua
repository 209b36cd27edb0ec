-- Apply recorded decisions of one token and claim its only successor for the worker that calls.
-- KEYS     as in store.lua
-- ARGV[4]  decisions, as in apply   ARGV[7] the entry to delete, or empty
-- ARGV[8]  of the layout SUCCESSOR, see constants.py (msgpack)
-- RETURNS  reply as of apply, whose last part is false, or of the claimed successor: the token, the number of its
--          fence, if it is the only token how many items have failed, whether the execution was rebuilt
-- A crash after this: a claimed successor is in no queue; its lease expires and the sweeper sends it.
verbs.advance = function()
  return act.apply(cmsgpack.unpack(ARGV[8]))
end
