#!lua
-- The rule of a ringfence fence, to stand at the top of a script. Redis runs a script as one step, so nobody raises between
-- this check and what follows it.
--
-- KEYS  [the store's binding,] a fence for each token, then the caller's own keys
-- ARGV  tokens, cluster, 1 to refuse a replaced store or 0, 1 when KEYS[1] is the binding or 0,
--       epoch and session of each token, then the caller's own
--
-- An epoch is sixteen digits with leading zeros. It is compared in two halves, which a number of Lua (a double) keeps exactly.
-- The tokens of one scope come with the newest first.
--
-- It defines `ringfence.check()`, which answers nothing when the write may go on, and the refusal to return when it may not;
-- `ringfence.keys` and `ringfence.argv` are where the caller's own keys and arguments begin.

local TOKENS, CLUSTER, BOUND = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[4])
local call, pcall_, find, sub = redis.call, redis.pcall, string.find, string.sub

-- Below, at, or above zero, as `a` is below, at, or above `b`. Exact up to 2^53.
local function difference(a, b)
  return (tonumber(sub(a, 1, 8)) - tonumber(sub(b, 1, 8))) * 100000000
    + (tonumber(sub(a, 9, 16)) - tonumber(sub(b, 9, 16)))
end

local function is_epoch(text)
  return find(text, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d$')
    and text ~= '0000000000000000'
    and difference(text, '9007199254740991') <= 0
end

-- The server's present life as a primary. A restart and a promotion begin another.
local function present_reign()
  if ARGV[3] ~= '1' then return '-' end
  local info = call('INFO', 'replication')
  if not find(info, 'role:master', 1, true) then return nil, { 'replica', 0 } end
  -- By plain text: a pattern is tried at every letter.
  local _, before = find(info, '\nmaster_replid:', 1, true)
  local last = before and find(info, '\r', before, true)
  if not last or last - before < 2 then return nil, { 'nameless', 0 } end
  return sub(info, before + 1, last - 1)
end

-- What the store is bound to. A fence that is there says itself whose it is, so only raises and absent fences ask.
local function binding_refuses()
  if BOUND == 0 then return nil end
  local binding = pcall_('HMGET', KEYS[1], 'format', 'cluster')
  if binding.err then return { 'corrupt', 0, 'type', binding.err } end
  if not binding[1] then return { 'uninstalled', 0 } end
  if binding[1] ~= '1' then return { 'corrupt', 0, 'format', binding[1] } end
  if binding[2] ~= CLUSTER then return { 'cluster', 0, binding[2] or '' } end
end

-- What a scope's key holds: epoch, session, cluster, reign. Nothing where there is no key.
local function read(key, at)
  local row = pcall_('HMGET', key, 'epoch', 'session', 'cluster', 'reign')
  if row.err then return nil, { 'corrupt', at, 'type', row.err } end
  if not row[1] and call('EXISTS', key) == 0 then return nil end
  local epoch, session = row[1] or '', row[2] or ''
  if not is_epoch(epoch) then return nil, { 'corrupt', at, 'epoch', epoch } end
  if find(session, '%D') then return nil, { 'corrupt', at, 'session', session } end
  if row[3] ~= CLUSTER then
    return nil, row[3] and { 'cluster', at, row[3] } or { 'corrupt', at, 'cluster', '' }
  end
  local left = call('PTTL', key)
  if left >= 0 then return nil, { 'corrupt', at, 'time to live', tostring(left) } end
  return { epoch, session, row[4] or '' }
end

-- Decides on one token: epoch and session as they must be afterwards, or a refusal.
local function decide(row, at, raising, jump)
  local epoch, session = ARGV[3 + 2 * at], ARGV[4 + 2 * at]
  if not row then
    if not raising then return nil, binding_refuses() or { 'unraised', at } end
    if difference(epoch, '0000000000000000') > jump then return nil, { 'implausible', at, '' } end
    return { epoch, session }
  end
  local ahead = difference(epoch, row[1])
  if ahead < 0 then return nil, { 'fenced', at, row[1] } end
  if ahead > jump then return nil, { 'implausible', at, row[1] } end
  if ahead > 0 then return { epoch, session, row[3] } end
  local holder = row[2]
  if holder == '' and session ~= '' then return { epoch, session, row[3] } end
  if session ~= '' and session ~= holder then return nil, { 'session', at, holder } end
  -- The owner going on: the very row.
  return row
end

-- Asks every fence, and only then remembers. Answers a refusal, or nothing.
local function ask(raising, jump)
  if TOKENS < 1 then return { 'unstamped', 0 } end
  local reign, refusal = present_reign()
  refusal = refusal or (raising and binding_refuses())
  if refusal then return refusal end
  local before, after = {}, {}
  for at = 1, TOKENS do
    local key = KEYS[BOUND + at]
    local row = after[key]
    if not row then
      row, refusal = read(key, at)
      if refusal then return refusal end
      before[key] = row
    end
    row, refusal = decide(row, at, raising, jump)
    if refusal then return refusal end
    if not raising and reign ~= '-' and row[3] ~= reign then return { 'replaced', at } end
    after[key] = row
  end
  for key, row in pairs(after) do
    if raising then
      -- Also where it changes nothing: what is written to the log is what the answer waits for.
      call('HSET', key, 'epoch', row[1], 'session', row[2], 'cluster', CLUSTER, 'reign', reign)
    elseif row ~= before[key] then
      call('HSET', key, 'epoch', row[1], 'session', row[2])
    end
  end
end

local ringfence = {
  keys = TOKENS + BOUND + 1,
  argv = 5 + 2 * TOKENS,
  raise = function(jump) return ask(true, jump) end,
  -- As far as 2^48 ahead: nobody was granted what is further.
  check = function() return ask(false, 281474976710656) end,
}
