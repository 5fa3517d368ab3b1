local id, body, count = ids[i], found[i], counts[i]
if count == 'x' then
  -- A cancelled job kept its id until here, so that no other could take the
  -- entry for its own.
  redis.call('HDEL', bodies, id)
  redis.call('HDEL', failures, id)
  body = false
end
if body then
  size = size + #body
  if j > 0 and size > bytes then
    break
  end
  local stamp = string.sub(entries[i], 1, #entries[i] - #id - 1)
  jobs[j + 1], jobs[j + 2], jobs[j + 3], jobs[j + 4] = id, body, tonumber(stamp), count and tonumber(count) or 0
  grants[g + 1], grants[g + 2] = fence, id
  j, g = j + 4, g + 2
else
  dropped = dropped + 1
end
