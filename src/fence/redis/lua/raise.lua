return ringfence.raise(tonumber(ARGV[ringfence.argv])) or { 'done', 0, false }
