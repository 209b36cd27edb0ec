-- Unit of work over one execution: a field is read when it is first needed, and everything is written at the end or not
-- at all, because Redis does not roll back a function that fails.
--
-- KEYS[1] fields of the execution (hash)       KEYS[4] due times of the executions of the partition (zset)
-- KEYS[2] its timers (zset, due in ms)         KEYS[5] resend times of the tokens of the partition (zset)
-- KEYS[3] listeners for its signals (zset)
-- ARGV[1] run id of the server   ARGV[2] now in ms, 0: the server's time   ARGV[3] id of the execution
-- ARGV[4] argument of the verb
-- The last argument is removed before: the time (ms) by the server's clock after which nothing may be done any more.
--
-- With a queue on streams, apply and fire add emitted tokens to their streams:
-- KEYS[6] the default stream   KEYS[7] the stream of the entry to delete   KEYS[8..] the streams of named queues, then
-- the default stream and those of named queues for items of fan-outs
-- ARGV[5] the group, empty: nothing is sent here   ARGV[6] node -> key, of the nodes with a named queue (msgpack), or
-- empty   ARGV[7] the entry to delete, or empty; apply: ARGV[7..] entries of one stream
--
-- PREFIX, LEASE, UNSENT, SEND_MARKS and CHILD are written before this file by constants.py, from the names of Python.
-- It also replaces the names of positions: token[TOKEN.fate] is token[6], see LAYOUTS there.
--
-- Parts of the fields, as snapshot.py writes them. Absent: false, 0 or none, so that most fields are short.
-- !  meta      i run of the server   o offset of a simulated clock   ft the clock is simulated   rb read back from the
--              journal   np ms that it has to wait to be unloaded   k number of the last pause or resume   p paused since
--              pc claims while it is paused   ps earlier pauses   lt it is late   f its end   u failures that no
--              aggregator collects   v failed items   r cancelled regions   lc tokens that wait for children   m limit of
--              parallel nodes   c claims counted against it   a items that run   li, lw limits of such items, of all
--              fan-outs and of one
-- #  fixed     s start   t timeout   l time after which it is late   r races
-- s  scope     o opened at   c live tokens and items   a those that do not wait   s its item counts as running   x its item
--              has failed   d done nodes (bits)   f fan-outs
-- l  live      p payload   e error   r arrived   f fate   t attempt   m resumed   g signal   j the same with its value
--              i items   z at   o last arrival   w it waits   k parked by a pause   d due   s signal waited for   x deadline
--              h waits since
-- c  claim     n number of the fence   u until   o owner   e engine errors   b how often it was given back   r rebuilt
-- b  barrier   p parties   n arrived   l of them alive   f first   t latest arrival   x timeout   y counted from   o open
-- F  fixed     n items   p payload   e error   w window   g aggregator   m edges into it   t, o its timeout, counted from
--              x effects that start an item   r races
-- f  fan-out   n items   x next item   i open items   a running ones   r collected places   f, l first and latest of them
--              q place of the latest   c no further items   z its marks are deleted   d items that a rebuild started ahead

-- ms after which sent tokens that no worker has claimed are sent again
local RESEND = 60000
-- ms that a timer is ahead at most whose scheduler has to be notified; schedulers look for timers once a second
local LOOK_MS = 1500
-- ms that a deadline is ahead at most: one further ahead is from another clock
local MAX_AHEAD = 30000
-- ms for which an execution is marked that no process may install from memory any more; far above MAX_AHEAD
local MARKED = 60000
-- the timer of an execution that is late; neither a pause nor a simulated clock waits for it
local LATENESS = 'l|-1||0'
local BATCH, SCAN = 500, 200
local KEYS, ARGV
local verbs, store = {}, {}
local meta, now, micros
local cache, changed, timers, listeners, held
local emitted, finish, gives_up
-- Items of fan-outs that this call has started, however many decisions it applies.
local started

-- Numbers as text: a table lookup takes a fifth of the time of a conversion.
local digits = {}
for number = -1, 255 do digits[number] = '' .. number end
local function text(number)
  return digits[number] or number
end

-- The library stays loaded between calls, so every variable is reset. Returns an error if the call is too late: its
-- caller has given up, and the marks that guard against it may be gone. It contains the time of the server. PREFIX is
-- that of the keys which the library was loaded for; a user may use its own keys only, so that these functions are of no
-- use to the users of another prefix.
function store.begin(keys, arguments)
  if keys[1]:sub(1, #PREFIX) ~= PREFIX then
    return redis.error_reply('PREFIX these functions are for keys below ' .. PREFIX)
  end
  local deadline, time = tonumber(table.remove(arguments)), redis.call('TIME')
  micros = time[1] * 1000000 + time[2]
  local clock = math.floor(micros / 1000)
  if not deadline or clock > deadline or deadline > clock + MAX_AHEAD then
    return redis.error_reply(string.format('LATE %.0f', clock))
  end
  KEYS, ARGV = keys, arguments
  meta, now = nil, nil
  cache, changed, timers, listeners, held = {}, {}, {}, {}, {}
  emitted, finish, gives_up = {}, false, false
  started = 0
end

function store.get(field)
  local found = cache[field]
  if found == nil then
    local packed = redis.call('HGET', KEYS[1], field)
    found = packed and cmsgpack.unpack(packed) or false
    cache[field] = found
  end
  return found
end

-- Read many fields at once into the cache of get().
function store.fetch(fields)
  local missing, count = {}, 0
  for i = 1, #fields do
    local field = fields[i]
    if cache[field] == nil then
      count = count + 1
      missing[count] = field
    end
  end
  for first = 1, count, BATCH do
    local last = math.min(first + BATCH - 1, count)
    local packed = redis.call('HMGET', KEYS[1], unpack(missing, first, last))
    for i = first, last do
      local each = packed[i - first + 1]
      cache[missing[i]] = each and cmsgpack.unpack(each) or false
    end
  end
end

function store.put(field, value)
  cache[field] = value
  changed[field] = true
  return value
end

function store.write(field)
  changed[field] = true
  return store.get(field)
end

function store.drop(field)
  cache[field] = false
  changed[field] = true
end

-- Number of fields whose name begins with a letter.
function store.count(letter)
  local found = 0
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if field:sub(1, 1) == letter then found = found + 1 end
  end
  return found
end

-- Some hundreds of fields from a cursor on and the next cursor, '0' after the last. A field that exists during the whole
-- scan is returned at least once. The first page includes fields that this call has created.
function store.scan(cursor)
  local found = {}
  if cursor == '0' then
    for field in pairs(changed) do
      if cache[field] then found[#found + 1] = field end
    end
  end
  repeat
    local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', SCAN)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local field = page[2][i]
      if cache[field] == nil then cache[field] = cmsgpack.unpack(page[2][i + 1]) end
      if cache[field] then found[#found + 1] = field end
    end
  until cursor == '0' or #found >= SCAN
  return found, cursor
end

function store.clock()
  local given = tonumber(ARGV[2])
  return given ~= 0 and given or math.floor(micros / 1000)
end

-- A number that never decreases.
function store.moment()
  return micros
end

-- Open an execution and read the given fields. False: there is no state of this server run and the caller has to
-- rebuild it.
function store.open(fields)
  now = store.clock()
  if fields then store.fetch(fields) end
  meta = store.get('!')
  if not meta or meta.i ~= ARGV[1] then return false end
  now = now + (meta.o or 0)
  return true
end

function store.arm(kind, node, path, number, due)
  timers[kind .. '|' .. text(node) .. '|' .. path .. '|' .. number] = due
end

function store.disarm(kind, node, path, number)
  timers[kind .. '|' .. text(node) .. '|' .. path .. '|' .. number] = false
end

function store.send(path, node, live)
  if live.f == 'expire' then gives_up = true end
  emitted[#emitted + 1] = {
    node, path, live.p, live.e or false, live.r or '', live.f or 'run', live.t or 1,
    live.m or false, live.g or false, live.i or 0, live.z or 0, live.o or 0,
  }
end

function store.finish(what)
  finish = what
end

local function in_batches(command, key, list)
  for first = 1, #list, BATCH do
    redis.call(command, key, unpack(list, first, math.min(first + BATCH - 1, #list)))
  end
end

-- Times are integers; formatting them here is faster than in the server.
local function whole(time)
  return string.format('%d', time)
end

-- scores: member -> score, false to remove the member.
local function write_scores(key, scores)
  local one, its = next(scores)
  if one == nil then return end
  if next(scores, one) == nil then
    if its then redis.call('ZADD', key, whole(its), one) else redis.call('ZREM', key, one) end
    return
  end
  local add, remove, added, removed = {}, {}, 0, 0
  for member, score in pairs(scores) do
    if score then
      add[added + 1], add[added + 2] = whole(score), member
      added = added + 2
    else
      removed = removed + 1
      remove[removed] = member
    end
  end
  in_batches('ZREM', key, remove)
  in_batches('ZADD', key, add)
end

local function write_fields()
  local put, drop, puts, drops = {}, {}, 0, 0
  for field in pairs(changed) do
    local value = cache[field]
    if value then
      put[puts + 1], put[puts + 2] = field, cmsgpack.pack(value)
      puts = puts + 2
    else
      drops = drops + 1
      drop[drops] = field
    end
  end
  in_batches('HDEL', KEYS[1], drop)
  in_batches('HSET', KEYS[1], put)
end

-- Whether nothing of the execution can run before its next timer or, while paused, before the resume. A join that is
-- about to time out has no token yet.
local function is_idle()
  local root = store.get('s')
  if not root or meta.f or gives_up then return false end
  return root.a == 0 or (meta.p and meta.pc == 0)
end

-- Unload an execution that only waits, keeping its due time; one with a simulated clock advances the clock instead.
-- Return whether its fields are dropped, and when it is due.
local function unload_if_idle(nearest)
  if not meta.np or not is_idle() then return false, nearest end
  if meta.p then
    nearest = not meta.ft and tonumber(redis.call('ZSCORE', KEYS[2], LATENESS) or nil)
    return not nearest or nearest - now > meta.np, nearest
  end
  if not nearest then return true, false end
  if meta.ft then
    if (meta.lc or 0) == 0 and nearest > now then
      meta.o = (meta.o or 0) + nearest - now
      changed['!'] = true
    end
    return false, nearest
  end
  return nearest - now > meta.np, nearest
end

function store.nearest()
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  if meta.ft and first[1] == LATENESS then first = redis.call('ZRANGE', KEYS[2], 1, 1, 'WITHSCORES') end
  return first[2] and tonumber(first[2]) or false
end

local prefixes = {}

-- The prefix of all keys.
function store.prefix()
  local key = KEYS[4]
  local found = prefixes[key]
  if not found then
    found = key:match('^(.-):{')
    prefixes[key] = found
  end
  return found
end

-- Notify schedulers that sleep until the first timer of the partition of an earlier one.
function store.notify_earlier(due)
  if due - store.clock() > LOOK_MS then return end
  if redis.call('ZRANGE', KEYS[4], 0, 0)[1] == ARGV[3] then redis.call('PUBLISH', store.prefix() .. ':nearer', '1') end
end

-- Whether a scheduler may have to wake earlier. The finish timer only matters after a crash, so it needs no
-- notification.
local function may_be_earliest()
  if meta.ft or not next(timers) then return true end
  for timer, due in pairs(timers) do
    if due and timer:sub(1, 1) ~= 'f' then return true end
  end
  return false
end

-- Write all changes. `keeps`: do not unload the execution even if it only waits.
function store.flush(keeps)
  write_scores(KEYS[2], timers)
  write_scores(KEYS[3], listeners)
  for member, at in pairs(held) do
    if at then held[member] = at - at % 2 end
  end
  write_scores(KEYS[5], held)
  local gone, wakes = false, false
  if next(timers) or is_idle() then
    wakes = store.nearest()
    if not keeps then gone, wakes = unload_if_idle(wakes) end
    if wakes then
      local due = wakes - (meta.o or 0)
      redis.call('ZADD', KEYS[4], whole(due), ARGV[3])
      if may_be_earliest() then store.notify_earlier(due) end
    else
      redis.call('ZREM', KEYS[4], ARGV[3])
    end
  end
  if gone then redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3]) else write_fields() end
end

-- Whether a token that this call has emitted still has to run at its end.
local function is_open(token)
  if token[TOKEN.fate] == 'expire' then return true end
  local live = store.get('l' .. token[TOKEN.path] .. '|' .. token[TOKEN.node])
  return live and not live.w and not live.k
    and (live.t or 1) == token[TOKEN.attempt] and (live.m or false) == token[TOKEN.resumed]
end

-- Items of fan-outs use the streams after those of other tokens.
local function stream_of(token, routes)
  local key = routes[token[TOKEN.node]] or 6
  if token[TOKEN.path] == '' then return key end
  local named = (#KEYS - 8) / 2
  return key == 6 and 8 + named or key + named + 1
end

-- The resend time of a token that the caller has to send. It is odd, unlike the ends of leases, and its lowest bits tell
-- attempts and resumes of the token apart. A fraction would do the same, but Redis is slow to compare fractions.
function store.unsent(attempt, resumed)
  local which = (2 * attempt + (resumed and 1 or 0)) % 32
  local at = now + UNSENT - (meta.o or 0)
  return whole(at - at % SEND_MARKS + 2 * which + 1)
end

-- Send tokens. Return those that the caller has to send, and schedule their resend in case it crashes first.
function store.deliver(tokens)
  local sends = (ARGV[5] or '') ~= ''
  local routes = sends and ARGV[6] ~= '' and cmsgpack.unpack(ARGV[6]) or {}
  local again = {}
  for _, each in ipairs(tokens) do
    if is_open(each) then
      if sends then
        redis.call('XADD', KEYS[stream_of(each, routes)], '*', 'x', ARGV[3], 't', cmsgpack.pack(each))
      elseif each[TOKEN.fate] ~= 'expire' then
        again[#again + 1] = store.unsent(each[TOKEN.attempt], each[TOKEN.resumed])
        again[#again + 1] = ARGV[3] .. '|' .. text(each[TOKEN.node]) .. '|' .. each[TOKEN.path]
      end
    end
  end
  in_batches('ZADD', KEYS[5], again)
  return sends and {} or tokens
end

-- Delete the entries that delivered the applied tokens: those from ARGV[7] to the given one.
function store.delete_entries(last)
  if (ARGV[7] or '') == '' then return end
  redis.call('XACK', KEYS[7], ARGV[5], unpack(ARGV, 7, last))
  redis.call('XDEL', KEYS[7], unpack(ARGV, 7, last))
end

-- With an end: the number of failures that no aggregator collects and the first of them, and the number of failed items.
function store.failures()
  if finish == '!items' then return { meta.u, store.get('e'), meta.v or 0 } end
  return finish and meta.v and { 0, false, meta.v } or false
end

function store.reply(status, more)
  return cmsgpack.pack({ status, now, emitted, finish, store.failures(), more or false })
end
