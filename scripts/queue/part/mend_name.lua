-- A hold is two fields, and a living job has both or none. Half of the hold of a deleted job goes, as does the half of
-- a job that holds another name. A living job gets the other half back. Where the holder of a name is not known, only
-- an end shows that the name was held: a job whose time was over gives its name up and remembers it, as a dead job
-- does.
local holder, held = redis.call('HGET', unique, 'k:' .. name), redis.call('HGET', unique, 'j:' .. id)
if holder == id and (not there or held and held ~= name) or not there and held == name then
  verdict = 1
  names[#names + 1] = {id, name}
elseif holder == id and not held then
  verdict = 1
  halves[#halves + 1], halves[#halves + 2] = 'j:' .. id, name
elseif held == name and not holder and not given[name] and redis.call('ZSCORE', expiry, name)
  and not redis.call('ZSCORE', dead, id) then
  verdict = 1
  halves[#halves + 1], halves[#halves + 2] = 'k:' .. name, id
  given[name] = true
end
