local refused = ringfence.check()
if refused then return refused end
-- Not by unpack, which has room for some thousands only.
local keys, argv = {}, {}
for at = ringfence.keys, #KEYS do keys[#keys + 1] = KEYS[at] end
for at = ringfence.argv, #ARGV do argv[#argv + 1] = ARGV[at] end
local worked, answer = pcall(ringfence_body, keys, argv)
if not worked then return { 'failed', 0, type(answer) == 'table' and answer.err or tostring(answer) } end
if type(answer) == 'table' and answer.err then return { 'failed', 0, answer.err } end
return { 'done', 0, answer == nil and false or answer }
