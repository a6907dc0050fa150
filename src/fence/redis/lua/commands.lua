local refused = ringfence.check()
if refused then return refused end
local replies, at = {}, ringfence.argv + 1
for number = 1, tonumber(ARGV[ringfence.argv]) do
  local last = at + tonumber(ARGV[at])
  local reply = redis.pcall(unpack(ARGV, at + 1, last))
  if type(reply) == 'table' and reply.err then return { 'failed', number, reply.err } end
  replies[number] = reply
  at = last + 1
end
return { 'done', 0, replies }
