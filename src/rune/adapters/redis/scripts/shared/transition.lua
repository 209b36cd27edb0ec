-- Translation of rune.core.execution.transition: the only place where tokens, joins, windows and counts change.
-- e[ARRIVE.place] and the like: positions in a list, named in LAYOUTS of constants.py.
-- Paths are texts such as 3.5.7.2; references are opaque texts, of which two kinds are built here (i: item, e: entered).
local CHUNK, FIRST_FAILURES, FINISH_GRACE, MARKS = 128, 10, 3000, 512
local COMPLETED = '{"status":"completed"}'
local act = {}
local at

-- Enclosing path, split, item.
function act.parent(path)
  local around, split, item = path:match('^(.-)%.?(%d+)%.(%d+)$')
  return around, tonumber(split), tonumber(item)
end

function act.within(path, outer)
  return outer == '' or path == outer or path:sub(1, #outer + 1) == outer .. '.'
end

-- Seven nodes per byte keep the bit set of done nodes valid ASCII for every decoder.
function act.is_done(path, node)
  local done = store.get('s' .. path).d
  local byte = done and done:byte(math.floor(node / 7) + 1) or 0
  return bit.band(byte, bit.lshift(1, node % 7)) ~= 0
end

function act.set_done(path, node)
  local scope = store.write('s' .. path)
  local done, place = scope.d or '', math.floor(node / 7)
  if #done < place then done = done .. string.rep('\0', place - #done) end
  local byte = bit.bor(done:byte(place + 1) or 0, bit.lshift(1, node % 7))
  scope.d = done:sub(1, place) .. string.char(byte) .. done:sub(place + 2)
end

-- Whether a token leads only to a race that was won by another branch.
function act.is_pointless(node, path)
  for _, each in ipairs(meta.r or {}) do
    if each[REGION.nodes]:find(',' .. text(node) .. ',', 1, true) and act.within(path, each[REGION.path]) then return true end
  end
  return false
end

function act.emit(path, node, live)
  local scope = store.write('s' .. path)
  if meta.p then live.k = true end
  store.put('l' .. path .. '|' .. text(node), live)
  scope.c = scope.c + 1
  scope.a = scope.a + 1
  if not meta.p then store.send(path, node, live) end
end

function act.finish(what)
  if not meta.f then
    meta.f = what
    changed['!'] = true
    store.finish(what)
    store.arm('f', -1, '', 0, at + FINISH_GRACE)
  end
end

-- payload and error are those of the fan-out item if the effect comes from its template.
function act.perform(path, effects, payload, error)
  for _, e in ipairs(effects) do
    local kind = e[EFFECT.kind]
    if kind == KIND.emit then
      act.emit(path, e[EMIT.node], { p = payload or e[EMIT.payload], e = error or e[EMIT.error] or nil })
    elseif kind == KIND.arrive then
      act.arrive(path, e, payload or e[ARRIVE.payload], error or e[ARRIVE.error])
    elseif kind == KIND.gather then
      act.collect_item(path, e[GATHER.position], e[GATHER.mark])
    elseif kind == KIND.skip then
      act.set_done(path, e[SKIP.node])
    elseif kind == KIND.spread then
      act.fan_out(path, e)
    elseif kind == KIND.uncollected then
      act.count_failure(path, e[UNCOLLECTED.node], e[UNCOLLECTED.failure])
    else
      act.finish(e[FINISH.ending])
    end
  end
end

-- opens: 0 for all, else how many live arrivals are needed.
local function verdict(opens, parties, live, arrived)
  local missing = parties - arrived
  if live == 0 then return missing == 0 and 'skip' or nil end
  if opens == 0 then return missing == 0 and 'run' or nil end
  if live >= opens then return 'run' end
  return live + missing < opens and 'unreachable' or nil
end

-- e: an effect of the layout ARRIVE.
function act.arrive(path, e, payload, error)
  local node, name = e[ARRIVE.node], path .. '|' .. text(e[ARRIVE.node])
  if act.is_done(path, node) then return end
  local barrier = store.get('b' .. name)
  local arrival = 'a' .. name .. '|' .. e[ARRIVE.place]
  if barrier and store.get(arrival) then return end
  if not barrier then
    barrier = { n = 0, l = 0, f = at, t = at, p = e[ARRIVE.parties], x = e[ARRIVE.timeout], y = e[ARRIVE.from] }
  end
  store.put('b' .. name, barrier)
  store.put(arrival, { e[ARRIVE.edge], e[ARRIVE.source], e[ARRIVE.alive], payload or false, error or false, at })
  barrier.n = barrier.n + 1
  barrier.l = barrier.l + (e[ARRIVE.alive] and 1 or 0)
  barrier.f, barrier.t = math.min(barrier.f, at), math.max(barrier.t, at)
  if barrier.o then return end
  local fate = verdict(e[ARRIVE.opens], e[ARRIVE.parties], barrier.l, barrier.n)
  if not fate then
    act.wait_on(path, node, e[ARRIVE.timeout], e[ARRIVE.from], barrier.n == 1)
    return
  end
  barrier.o = true
  if e[ARRIVE.timeout] >= 0 then store.disarm('j', node, path, 0) end
  act.emit(path, node, act.opened(path, node, barrier, fate))
end

function act.wait_on(path, node, timeout, from, first)
  if first and timeout >= 0 and from ~= 'scope' then store.arm('j', node, path, 0, at + timeout) end
end

-- The arrivals of a join in the order of its edges, and the position of each.
function act.arrivals(path, node, barrier)
  local fields, found, positions = {}, {}, {}
  for place = 0, barrier.p - 1 do fields[place + 1] = 'a' .. path .. '|' .. text(node) .. '|' .. place end
  store.fetch(fields)
  for position, field in ipairs(fields) do
    if cache[field] then
      found[#found + 1] = cache[field]
      positions[#found] = position
    end
  end
  return found, positions
end

-- The single token that an opening join emits. A join that runs absorbs the errors of its dead edges.
function act.opened(path, node, barrier, fate)
  local error, payload, listed, source = nil, nil, {}, nil
  local several, last, latest = false, 0, -1
  local arrivals, positions = act.arrivals(path, node, barrier)
  for i, each in ipairs(arrivals) do
    if each[ARRIVAL.at] >= latest then last, latest = positions[i], each[ARRIVAL.at] end
    if each[ARRIVAL.alive] then
      listed[#listed + 1] = each[ARRIVAL.edge] .. '=' .. (each[ARRIVAL.payload] or 's')
      payload = payload or each[ARRIVAL.payload] or 's'
      several = several or (source ~= nil and source ~= each[ARRIVAL.source])
      source = each[ARRIVAL.source]
    end
    if (each[ARRIVAL.alive] or fate == 'skip') and each[ARRIVAL.error] then error = error or each[ARRIVAL.error] end
  end
  if several or not payload then payload = 'e' .. text(node) .. '@' .. path end
  return {
    p = payload, e = error, r = #listed > 0 and table.concat(listed, ' ') or nil,
    f = fate ~= 'run' and fate or nil, z = barrier.t, o = last,
  }
end

function act.drop_barrier(path, node)
  local name = path .. '|' .. text(node)
  local barrier = store.get('b' .. name)
  if not barrier then return end
  store.drop('b' .. name)
  for place = 0, barrier.p - 1 do store.drop('a' .. name .. '|' .. place) end
end

function act.collect_item(path, position, mark)
  local around, split, item = act.parent(path)
  local name = around .. '|' .. text(split)
  local fixed = store.get('F' .. name)
  if act.is_done(around, fixed.g) then return end
  local place = item * fixed.m + position
  local field, offset = 'k' .. name .. '|' .. math.floor(place / MARKS), place % MARKS
  local marks = store.get(field) or ''
  if (marks:byte(offset + 1) or 0) ~= 0 then return end
  if #marks < offset then marks = marks .. string.rep('\0', offset - #marks) end
  store.put(field, marks:sub(1, offset) .. string.char(mark) .. marks:sub(offset + 2))
  if mark == 3 then act.count_failed_item(path) end
  local fan = store.write('f' .. name)
  fan.r = (fan.r or 0) + 1
  fan.f = math.min(fan.f or at, at)
  local latest = fan.l or 0
  if at > latest or (at == latest and place + 1 > (fan.q or 0)) then fan.l, fan.q = at, place + 1 end
  if fan.r == fixed.n * fixed.m then
    act.open_aggregator(around, fixed, fan)
  else
    act.wait_on(around, fixed.g, fixed.t, fixed.o, fan.r == 1)
  end
end

function act.open_aggregator(path, fixed, fan)
  if fixed.t >= 0 then store.disarm('j', fixed.g, path, 0) end
  local last = fan.q and (fan.q - 1) % fixed.m + 1 or nil
  act.emit(path, fixed.g, { p = fixed.p, e = fixed.e or nil, i = fixed.n, o = last })
end

local function earlier(a, b)
  local left, right = {}, {}
  for each in a[FAILURE.path]:gmatch('%d+') do left[#left + 1] = tonumber(each) end
  for each in b[FAILURE.path]:gmatch('%d+') do right[#right + 1] = tonumber(each) end
  for i = 1, math.min(#left, #right) do
    if left[i] ~= right[i] then return left[i] < right[i] end
  end
  if #left ~= #right then return #left < #right end
  return a[FAILURE.node] < b[FAILURE.node]
end

-- Count an item as failed, once however many of its paths fail.
function act.count_failed_item(path)
  if store.get('s' .. path).x then return end
  store.write('s' .. path).x = true
  meta.v = (meta.v or 0) + 1
  changed['!'] = true
end

function act.count_failure(path, node, failure)
  act.count_failed_item(path)
  meta.u = (meta.u or 0) + 1
  changed['!'] = true
  local first = store.get('e') or {}
  first[#first + 1] = { path, node, failure }
  table.sort(first, earlier)
  first[FIRST_FAILURES + 1] = nil
  store.put('e', first)
end

-- e: an effect of the layout SPREAD.
function act.fan_out(path, e)
  local split, count = e[SPREAD.node], e[SPREAD.count]
  local name, scope = path .. '|' .. text(split), store.write('s' .. path)
  scope.f = scope.f or {}
  scope.f[#scope.f + 1] = split
  local fixed = {
    n = count, p = e[SPREAD.payload], e = e[SPREAD.error], w = e[SPREAD.window], g = e[SPREAD.aggregator],
    m = e[SPREAD.edges], t = e[SPREAD.timeout], o = e[SPREAD.from], x = e[SPREAD.template], r = e[SPREAD.races],
  }
  store.put('F' .. name, fixed)
  local fan = store.put('f' .. name, { n = count, x = 0, i = 0, a = 0 })
  if count > 0 then
    act.start_items(path, split)
  elseif fixed.g >= 0 then
    act.open_aggregator(path, fixed, fan)
  end
end

-- Start as many items as fit into the window, at most CHUNK in one call, because the server does nothing else meanwhile.
function act.start_items(path, split)
  local name = path .. '|' .. text(split)
  local fan, fixed = store.get('f' .. name), store.get('F' .. name)
  act.pass_started(name, fan)
  if not fan.c and fan.x < fan.n and act.is_pointless(split, path) then act.abandon(path, name, fan, fixed) end
  while started < CHUNK and act.has_room(fan, fixed) do
    fan.x = fan.x + 1
    changed['f' .. name] = true
    act.start_item(path, split, fan.x - 1, fan, fixed)
    act.pass_started(name, fan)
    started = started + 1
  end
  if started >= CHUNK and not store.get('l' .. name) and act.has_room(fan, fixed) then
    act.emit(path, split, { p = 's', f = 'dispatch' })
  end
end

function act.has_room(fan, fixed)
  if fan.c or fan.x >= fan.n then return false end
  local free = fixed.w >= 0 and fixed.w - fan.i or (meta.lw or 1000) - fan.a
  if (meta.a or 0) >= (meta.li or 10000) then return fan.a == 0 and free > 0 end
  return free > 0
end

-- Advance the cursor over items that a rebuild has started ahead of it.
function act.pass_started(name, fan)
  while (fan.d or 0) > 0 and store.get('A' .. name .. '|' .. fan.x) do
    store.drop('A' .. name .. '|' .. fan.x)
    fan.x = fan.x + 1
    fan.d = fan.d - 1
    changed['f' .. name] = true
  end
end

function act.start_item(path, split, item, fan, fixed)
  local inner = (path == '' and '' or path .. '.') .. split .. '.' .. item
  local scope = store.put('s' .. inner, { o = at, c = 0, a = 0 })
  local outer = store.write('s' .. path)
  outer.c = outer.c + 1
  fan.i = fan.i + 1
  act.perform(inner, fixed.x, 'i' .. split .. '@' .. inner, fixed.e)
  if #fixed.r > 0 then act.arm_races(inner, fixed.r) end
  act.finish_item(inner, scope, outer, fan, path)
end

function act.arm_races(path, races)
  for _, each in ipairs(races) do store.arm('j', each[RACE.node], path, 0, at + each[RACE.timeout]) end
end

-- A cancelled region starts no further items; those never started count as dead at its aggregator.
function act.abandon(path, name, fan, fixed)
  fan.c = true
  changed['f' .. name] = true
  if fixed.g < 0 or act.is_done(path, fixed.g) then return end
  local from, ahead = fan.x, fan.d or 0
  for item = fan.x, ahead > 0 and fan.n - 1 or -1 do
    if store.get('A' .. name .. '|' .. item) then
      act.mark_dead(name, from * fixed.m, item * fixed.m, fan)
      from = item + 1
    end
  end
  act.mark_dead(name, from * fixed.m, fan.n * fixed.m, fan)
  if fan.r == fan.n * fixed.m then act.open_aggregator(path, fixed, fan) end
end

-- Mark places [from, to) as dead, a field at a time.
function act.mark_dead(name, from, to, fan)
  fan.r = (fan.r or 0) + to - from
  while from < to do
    local chunk = math.floor(from / MARKS)
    local last = math.min(to, (chunk + 1) * MARKS)
    local field, offset = 'k' .. name .. '|' .. chunk, from - chunk * MARKS
    local marks = store.get(field) or ''
    if #marks < offset then marks = marks .. string.rep('\0', offset - #marks) end
    store.put(field, marks:sub(1, offset) .. string.rep('\2', last - from) .. marks:sub(offset + last - from + 1))
    from = last
  end
end

-- Propagate the counts of a scope to the enclosing ones: items end, windows move, the execution ends.
function act.propagate_counts(path, refill)
  while path ~= '' do
    local around, split = act.parent(path)
    local name = around .. '|' .. text(split)
    local fan = store.write('f' .. name)
    act.finish_item(path, store.get('s' .. path), store.get('s' .. around), fan, around)
    if not refill then return end
    if fan.x < fan.n then act.start_items(around, split) end
    path = around
  end
  if store.get('s').c == 0 then act.finish((meta.u or 0) > 0 and '!items' or COMPLETED) end
end

-- The caller has marked the fan-out as changed.
function act.finish_item(path, scope, outer, fan, around)
  local stirs = scope.a > 0
  if stirs ~= (scope.s or false) then
    local change = stirs and 1 or -1
    scope.s = stirs or nil
    changed['s' .. path] = true
    fan.a = fan.a + change
    outer.a = outer.a + change
    changed['s' .. around] = true
    meta.a = (meta.a or 0) + change
    changed['!'] = true
  end
  if scope.c == 0 then
    act.close(path, scope)
    fan.i = fan.i - 1
    outer.c = outer.c - 1
    changed['s' .. around] = true
  end
end

function act.close(path, scope)
  store.drop('s' .. path)
  for _, split in ipairs(scope.f or {}) do
    store.drop('f' .. path .. '|' .. text(split))
    store.drop('F' .. path .. '|' .. text(split))
  end
end
