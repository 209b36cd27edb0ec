-- One execution as a unit of work: a field is read when it is first needed; everything is written at the end or not
-- at all, because a script that breaks off is not rolled back.
--
-- KEYS[1] fields of the execution (hash)       KEYS[4] when every execution of the partition is due (zset)
-- KEYS[2] its timers (zset, due in ms)         KEYS[5] when to look after a held token of the partition (zset)
-- KEYS[3] who listens for its signals (zset)
-- ARGV[1] incarnation: which run of the server this is   ARGV[2] now in ms, 0: ask the server   ARGV[3] id of the execution   ARGV[4] what to do
--
-- Where the queue is streams, what an act emits goes into them in the same act (apply, fire):
-- KEYS[6] the stream for most tokens   KEYS[7] that of the entry to let go   KEYS[8..] those of named queues, then as
-- many once more for items of fan-outs: for most of them, and of named queues
-- ARGV[5] the group, empty: nothing is sent here   ARGV[6] node -> key, of the nodes with a named queue (msgpack), or
-- empty   ARGV[7] the entry to let go, or empty; apply: ARGV[7..] entries of one stream
local LEASE = 9000
local RESEND = 60000 -- ms: what somebody else was to send and nobody has claimed by then is sent again
local BATCH, SCAN = 500, 512
local KEYS, ARGV
local verbs, store = {}, {}
local meta, now, micros
local cache, changed, timers, ears, held
local emitted, finish, gives_up

-- A number in a name: to look it up costs a fifth of writing it.
local digits = {}
for number = -1, 255 do digits[number] = '' .. number end
local function text(number)
  return digits[number] or number
end

-- The library stays loaded from call to call; nothing of one execution may reach the next.
function store.begin(keys, arguments)
  KEYS, ARGV = keys, arguments
  meta, now, micros = nil, nil, nil
  cache, changed, timers, ears, held = {}, {}, {}, {}, {}
  emitted, finish, gives_up = {}, false, false
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

-- Read many fields at once; get() then finds them.
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

-- How many fields begin with a letter.
function store.count(letter)
  local found = 0
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if field:sub(1, 1) == letter then found = found + 1 end
  end
  return found
end

-- Some hundreds of fields behind a cursor; the cursor of the next is '0' when these were the last. A field that stays
-- all the while is among them at least once. With the first come those that this very act has made.
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
  if given ~= 0 then return given end
  local time = redis.call('TIME')
  micros = time[1] * 1000000 + time[2]
  return math.floor(micros / 1000)
end

-- A number that only grows.
function store.moment()
  if micros then return micros end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Begin with an execution, and with the fields that are known to be needed. False: there is no state of this
-- incarnation, and whoever asks has to fold.
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
    live.m or false, live.g or false, live.i or 0, live.z or 0,
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

-- Times are whole numbers; as such they are written quicker than the server would write them.
local function whole(time)
  return string.format('%d', time)
end

-- A table of member -> score, or false for one to be removed.
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

-- Whether nothing of the execution can run before its next timer, or, in a pause, before the resume. A join about to be
-- given up has no token yet.
local function rests()
  local root = store.get('s')
  if not root or meta.f or gives_up then return false end
  return root.a == 0 or (meta.p and meta.pc == 0)
end

-- An execution that only waits leaves nothing but when it is due; one with a clock of its own jumps there instead.
-- Answers whether its fields are gone, and when it has to be looked at.
local function rest(nearest)
  if not meta.np or not rests() then return false, nearest end
  if meta.p or not nearest then return true, false end
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
  return first[2] and tonumber(first[2]) or false
end

local prefixes = {}

-- What the names of everything begin with.
function store.prefix()
  local key = KEYS[4]
  local found = prefixes[key]
  if not found then
    found = key:match('^(.-):{')
    prefixes[key] = found
  end
  return found
end

-- Whoever sleeps until the first timer of the partition hears of one that is before it.
function store.tell_nearer()
  if redis.call('ZRANGE', KEYS[4], 0, 0)[1] == ARGV[3] then redis.call('PUBLISH', store.prefix() .. ':nearer', '1') end
end

-- Whether somebody may have to wake earlier than they meant to. The finish timer is for the case that somebody dies:
-- for that it is early enough when it is found.
local function is_nearer()
  if meta.ft or not next(timers) then return true end
  for timer, due in pairs(timers) do
    if due and timer:sub(1, 1) ~= 'f' then return true end
  end
  return false
end

-- Write everything. `keeps`: the execution stays even if it only waits.
function store.flush(keeps)
  write_scores(KEYS[2], timers)
  write_scores(KEYS[3], ears)
  write_scores(KEYS[5], held)
  local gone, wakes = false, false
  if next(timers) or rests() then
    wakes = store.nearest()
    if not keeps then gone, wakes = rest(wakes) end
    if wakes then
      redis.call('ZADD', KEYS[4], whole(wakes - (meta.o or 0)), ARGV[3])
      if is_nearer() then store.tell_nearer() end
    else
      redis.call('ZREM', KEYS[4], ARGV[3])
    end
  end
  if gone then redis.call('DEL', KEYS[1], KEYS[2], KEYS[3]) else write_fields() end
end

-- Whether a token that this act has emitted is still to be run when the act is over.
local function is_open(token)
  if token[6] == 'expire' then return true end
  local live = store.get('l' .. token[2] .. '|' .. token[1])
  return live and not live.w and not live.k and (live.t or 1) == token[7] and (live.m or false) == token[8]
end

-- Items of fan-outs have streams of their own, behind the others.
local function stream_of(token, routes)
  local key = routes[token[1]] or 6
  if token[2] == '' then return key end
  local named = (#KEYS - 8) / 2
  return key == 6 and 8 + named or key + named + 1
end

-- Send tokens; answers those that are left for others to send, who may die before they do.
function store.deliver(tokens)
  local sends = (ARGV[5] or '') ~= ''
  local routes = sends and ARGV[6] ~= '' and cmsgpack.unpack(ARGV[6]) or {}
  local again, when = {}, whole(now + RESEND - (meta.o or 0))
  for _, each in ipairs(tokens) do
    if is_open(each) then
      if sends then
        redis.call('XADD', KEYS[stream_of(each, routes)], '*', 'x', ARGV[3], 't', cmsgpack.pack(each))
      elseif each[6] ~= 'expire' then
        again[#again + 1] = when
        again[#again + 1] = ARGV[3] .. '|' .. text(each[1]) .. '|' .. each[2]
      end
    end
  end
  in_batches('ZADD', KEYS[5], again)
  return sends and {} or tokens
end

-- The entries that brought the tokens have served.
function store.let_go()
  if (ARGV[7] or '') == '' then return end
  redis.call('XACK', KEYS[7], ARGV[5], unpack(ARGV, 7))
  redis.call('XDEL', KEYS[7], unpack(ARGV, 7))
end

-- What an act leads to. An end for failed items says how many there were and names the first.
function store.reply(status, more)
  local items = finish == '!items' and { meta.u, store.get('e') } or false
  return cmsgpack.pack({ status, now, emitted, finish, items, more or false })
end
