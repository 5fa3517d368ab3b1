--- RPCCollect reads records, for callers that wait for replies and nodes that missed requests.
---
--- Both run it after each confirmed subscription: what was published without a subscriber is in the records.
--- A caller gets replies. A node gets the requests that wait for it.
---
---@readonly
---@retry  safe  it only reads
---@keys   records  string  max=500  see rpc_call.lua
---@arg    node     string?  the node that reads; none for a caller
---@reply  (state enum(missing=0, pending=1, done=2, lost=3, later=4), attempt int, left ms,
---        frame bytes)[]  one row for each record, in order; missing: no record, or cancelled; left:
---        until the record expires; later: left out, as the rows hold 1 MB already
---@cost   O(1) for each record

local node = ARGV[1]
if #KEYS > 500 then
  error('records: at most 500')
end

local rows, n, size = {}, 0, 0
for i = 1, #KEYS do
  local record = KEYS[i]
  local head = redis.call('GETRANGE', record, 0, 255)
  local state, attempt, left, frame = 0, 0, 0, ''
  local kind = string.sub(head, 1, 1)
  if size > 1000000 and (kind == 'd' or kind == 'p' and node ~= '') then
    state = 4
  elseif kind == 'p' or kind == 'd' then
    local space = string.find(head, ' ', 1, true)
    local stop = string.find(head, '\n', space, true)
    attempt = tonumber(string.sub(head, 2, space - 1))
    if kind == 'd' then
      state = 2
      if node == '' then
        frame = string.sub(redis.call('GET', record), stop + 1)
      end
    elseif node == '' then
      state = 1
    elseif node == string.sub(head, space + 1, stop - 1) then
      local whole = redis.call('GET', record)
      state, left = 1, redis.call('PTTL', record)
      frame = string.sub(whole, string.find(whole, '\n', stop + 1, true) + 1)
    end
  elseif kind == 'l' then
    state = 3
  end
  size = size + #frame
  rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4] = state, attempt, left, frame
  n = n + 4
end
return rows
