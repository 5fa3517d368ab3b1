--- LockAcquireAll takes several locks of one slot for one owner, all of them or none.
---
--- It takes a free lock although others wait for it: those who take several at once
--- hold nothing while they wait. See lock_acquire.lua for what a string holds.
---
---@contract dup-only  an error half-way leaves some locks with this owner, whose repeat finds them its own
---@retry    safe  an owner keeps what it holds
---@keys     lock  string  see lock_acquire.lua
---@arg      owner  string  a token of this acquire alone, or group/token
---@arg      ttl    ms  min=1  the lease
---@arg      delay  ms  min=0  how long a lock rests after a lease that was not released
---@arg      note   string  what others are told of the holder
---@reply    (blocked int, remaining ms, holder string, fences int[])  blocked: the first lock that another holds, counted from 1, or 0; remaining, holder: of that one
---@cost     O(1) for each lock

local owner, ttl, delay, note = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)

local group = string.match(owner, '^.*/')
local fences, signs, rests = {}, {}, {}
for i, lock in ipairs(KEYS) do
  local record = redis.call('GET', lock)
  fences[i], signs[i], rests[i] = now, {'0', '-'}, {owner, ttl, note}
  if record then
    local f, w, holder, start, length, rest, released, held =
      string.match(record, '^(%d+) (%d) (%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
    local left = start / 1000 + length - now / 1000
    signs[i] = {w, released}
    if holder == owner and left > 0 then
      fences[i] = f
    elseif left > 0 and group and string.sub(holder, 1, #group) == group then
      local token = string.sub(owner, #group)
      if not string.find(holder .. '/', token .. '/', 1, true) then
        holder = holder .. token
      end
      -- Another of the group may need it for longer.
      fences[i], rests[i] = f, {holder, math.max(math.ceil(left), tonumber(ttl)), held}
    else
      left = left + rest
      if left > 0 then
        return {i, math.ceil(left), held, {}}
      end
      if f >= now then
        fences[i] = string.format('%.0f', f + 1)
      end
    end
  end
end

for i, lock in ipairs(KEYS) do
  local holder, length, text = rests[i][1], rests[i][2], rests[i][3]
  redis.call('SET', lock, fences[i] .. ' ' .. signs[i][1] .. ' ' .. holder .. ' ' .. now .. ' ' .. length .. ' ' .. delay .. ' ' .. signs[i][2] .. ' ' .. text, 'PX', length + 60000)
end
return {0, tonumber(ttl), '', fences}
