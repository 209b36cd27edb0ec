-- Translation of the parts of rune.core.execution.transition about waiting tokens: timers, signals, lost races.
local function sortable(path)
  local parts = {}
  for each in path:gmatch('%d+') do parts[#parts + 1] = string.format('%08x', tonumber(each)) end
  return table.concat(parts)
end

local function sized(name)
  return string.format('%08x', #name) .. name
end

-- Compare by bytes, independently of the server's locale.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    local left, right = a:byte(i), b:byte(i)
    if left ~= right then return left < right end
  end
  return #a < #b
end

local function is_earlier(a, b)
  if a[SIGNAL.at] ~= b[SIGNAL.at] then return a[SIGNAL.at] < b[SIGNAL.at] end
  return is_before(a[SIGNAL.id], b[SIGNAL.id])
end

-- The two members of a listener, by name and by name and lineage. Both sort the longest wait first.
function act.listener_members(path, node, live)
  local name = sized(live.s)
  local since, who = string.format('%015d', live.h), sortable(path)
  local tail = '!' .. path .. '!' .. string.format('%08d', node)
  return 'n' .. name .. since .. who .. tail, 'p' .. name .. who .. '/' .. since .. tail
end

function act.set_own_timer(path, node, live, due)
  if live.m then
    timers['w|' .. text(node) .. '|' .. path .. '|0'] = due
  else
    timers['r|' .. text(node) .. '|' .. path .. '|' .. (live.t or 1)] = due
  end
end

function act.wait_until(path, node, live, due)
  if not live.w then
    local scope = store.write('s' .. path)
    scope.a = scope.a - 1
  end
  live.w, live.k, live.d = true, nil, due or nil
  changed['l' .. path .. '|' .. text(node)] = true
  if due then act.set_own_timer(path, node, live, due) end
end

function act.wait_for_signal(path, node, live, name, deadline)
  live.s, live.x, live.h = name, deadline or nil, at
  if name:sub(1, #CHILD) == CHILD then
    meta.lc = (meta.lc or 0) + 1
    changed['!'] = true
  end
  local one, other = act.listener_members(path, node, live)
  listeners[one], listeners[other] = 0, 0
  if deadline and (not live.d or deadline < live.d) then act.set_own_timer(path, node, live, deadline) end
  local unheeded = store.get('q') or {}
  for i, signal in ipairs(unheeded) do
    if signal[SIGNAL.name] == name and (not signal[SIGNAL.path] or signal[SIGNAL.path] == path) then
      table.remove(unheeded, i)
      if #unheeded > 0 then store.put('q', unheeded) else store.drop('q') end
      act.give_signal(path, node, live, signal)
      return
    end
  end
end

-- The longest-waiting listener for a name, in one lineage or in any, including changes of this call.
function act.longest_waiting(name, path)
  local prefix, best = path and 'p' .. sized(name) .. sortable(path) .. '/' or 'n' .. sized(name), nil
  for member, score in pairs(listeners) do
    if score and member:sub(1, #prefix) == prefix and (not best or is_before(member, best)) then best = member end
  end
  local offset = 0
  while true do
    local first = redis.call('ZRANGEBYLEX', KEYS[3], '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', offset, 1)[1]
    if not first then break end
    if listeners[first] ~= false then
      if not best or is_before(first, best) then best = first end
      break
    end
    offset = offset + 1
  end
  if best then return best:match('!([%d.]*)!(%d+)$') end
end

-- Deliver a signal (of the layout SIGNAL) to its longest-waiting listener, or store it if there is none.
function act.route_signal(signal)
  local path, node = act.longest_waiting(signal[SIGNAL.name], signal[SIGNAL.path])
  if path then
    act.give_signal(path, tonumber(node), store.write('l' .. path .. '|' .. tonumber(node)), signal)
    act.propagate_counts(path, true)
    return
  end
  local unheeded, place = store.get('q') or {}, 1
  while unheeded[place] and not is_earlier(signal, unheeded[place]) do place = place + 1 end
  table.insert(unheeded, place, signal)
  store.put('q', unheeded)
end

function act.stop_waiting_for_signal(path, node, live)
  if not live.s then return end
  if live.s:sub(1, #CHILD) == CHILD then
    meta.lc = meta.lc - 1
    changed['!'] = true
  end
  local one, other = act.listener_members(path, node, live)
  listeners[one], listeners[other] = false, false
  live.s, live.h = nil, nil
end

function act.give_signal(path, node, live, signal)
  act.set_own_timer(path, node, live, false)
  live.g, live.j = signal[SIGNAL.id], signal
  act.wake(path, node, live)
end

function act.wake(path, node, live)
  act.stop_waiting_for_signal(path, node, live)
  live.w, live.d, live.x = nil, nil, nil
  live.k = meta.p and true or nil
  changed['l' .. path .. '|' .. text(node)] = true
  local scope = store.write('s' .. path)
  scope.a = scope.a + 1
  if not live.k then store.send(path, node, live) end
end

-- When the timer of a waiting token is due; nil if only a signal can end the wait.
function act.wakes_at(live)
  if not live.d or not live.x then return live.d or live.x end
  return math.min(live.d, live.x)
end

-- Cancel the branches that lead only to a decided race. Waiting tokens are resumed so that they end: a bounded number
-- now, the rest by a timer that is due at once. Later claims of tokens in the region find it cancelled.
function act.cancel_region(path, node, region)
  meta.r = meta.r or {}
  meta.r[#meta.r + 1] = { node, path, region }
  changed['!'] = true
  act.cancel_some(#meta.r, '0')
end

function act.cancel_some(number, cursor)
  local region = meta.r[number]
  local fields, following = store.scan(cursor)
  for _, field in ipairs(fields) do
    local kind, inner, node = field:match('^([ls])([%d.]*)|?(%d*)$')
    if kind and cache[field] and act.within(inner, region[REGION.path]) then
      if kind == 's' then
        for _, split in ipairs(cache[field].f or {}) do act.start_items(inner, split) end
        act.propagate_up_to(inner, region[REGION.path])
      elseif cache[field].w and region[REGION.nodes]:find(',' .. text(node) .. ',', 1, true) then
        act.wake(inner, tonumber(node), cache[field])
        act.propagate_up_to(inner, region[REGION.path])
      end
    end
  end
  if following ~= '0' then store.arm('x', number, '', following, -1) end
end

-- Propagate the counts of a scope to the enclosing ones, up to one that the caller handles.
function act.propagate_up_to(path, outer)
  while path ~= outer and path ~= '' do
    local around = act.parent(path)
    if store.get('s' .. path) then act.propagate_counts(path, false) end
    path = around
  end
end
