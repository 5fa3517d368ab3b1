--- Reserve takes pieces of several articles from the stock of a shop, all of them or none.
---
--- One HSET writes the stock and the reservation: no error comes between them. An id is for one reservation. A caller
--- that gives one up, as it was short or its outcome is not known, settles it: a copy of the call can still come.
---
---@contract all-or-nothing  one write
---@retry    safe  a reservation that is known, or was settled within the last hour, is not taken again
---@key      shop   hash = "shop:{$shop}"  s:article to pieces in stock; r:id to what is reserved: article, =, n,
---          a line feed
---@key      mark   string = "shop:{$shop}:$id"  of a reservation that is settled; expires
---@arg      id     string  of the reservation
---@args     item   (article string, n int)  max=100
---@reply    (reserved bool, short (article string, left int)[])  short: the articles that are not there
---@error    BAD_ITEM  an article is named twice, has no name that can be stored, or n is not 1 or more
---@cost     O(k) for k articles

local shop, mark, id = KEYS[1], KEYS[2], ARGV[1]
if #ARGV > 201 then
  error('item: at most 100')
end

if redis.call('HEXISTS', shop, 'r:' .. id) == 1 or redis.call('EXISTS', mark) == 1 then
  return {1, {}}
end
local fields, wanted = {}, {}
for i = 2, #ARGV, 2 do
  local article, n = ARGV[i], tonumber(ARGV[i + 1])
  if string.find(article, '[=\n]') or wanted[article] or not n or n < 1 then
    return redis.error_reply('BAD_ITEM each article once, without = and line feeds, from 1 piece on')
  end
  wanted[article] = n
  fields[#fields + 1] = article
end
local write, reserved, short = {}, {}, {}
for _, article in ipairs(fields) do
  local n = wanted[article]
  local left = tonumber(redis.call('HGET', shop, 's:' .. article) or 0)
  if left < n then
    short[#short + 1], short[#short + 2] = article, left
  end
  write[#write + 1], write[#write + 2] = 's:' .. article, left - n
  reserved[#reserved + 1] = article .. '=' .. n .. '\n'
end
if #short > 0 then
  return {0, short}
end
write[#write + 1], write[#write + 2] = 'r:' .. id, table.concat(reserved)
redis.call('HSET', shop, unpack(write, 1, #write))
return {1, {}}
