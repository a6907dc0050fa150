#!lua
-- Binds a store that is not bound, and answers what it is bound to.
-- KEYS the binding  ARGV cluster, tag
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'format', '1', 'cluster', ARGV[1], 'tag', ARGV[2])
end
local binding = redis.pcall('HMGET', KEYS[1], 'format', 'cluster', 'tag')
if binding.err then return { 'corrupt', 0, 'type', binding.err } end
if binding[1] ~= '1' then return { 'corrupt', 0, 'format', binding[1] or '' } end
if redis.call('PTTL', KEYS[1]) >= 0 then return { 'corrupt', 0, 'time to live', '' } end
return { 'bound', 0, binding[2] or '', binding[3] or '' }
