--- DropAll deletes keys.
---@contract all-or-nothing
---@keys items  max=100
---@args mode enum(a=1, b=2)  max=10

redis.call('DEL', unpack(KEYS))
for _, mode in ipairs(ARGV) do
  redis.log(redis.LOG_NOTICE, mode)
end
