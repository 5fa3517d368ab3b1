--- Texts reads texts that can be missing, and some that it has asked for.
---@readonly
---@uses cjson
---@uses cmsgpack
---@uses struct
---@key    k  string
---@key    h  hash
---@reply  any

local k, h = KEYS[1], KEYS[2]
local text, tested = redis.call('GET', k), redis.call('HGET', h, 'name')
local length = #redis.call('GET', k)
local doc = cjson.decode(redis.call('HGET', h, 'doc'))
local packed = cmsgpack.unpack(text)
local size = struct.unpack('>I2', text)
local safe = #(redis.call('GET', k) or '') + string.len(redis.call('HGET', h, 'x') or '')
local low, format = text:upper() .. string.lower(text), string.format('%s', 1)
if tested and #tested > 3 then
  return tested:sub(1, 3)
end
local all = {length, doc.n, packed.n, size, safe, low, format}
return all
