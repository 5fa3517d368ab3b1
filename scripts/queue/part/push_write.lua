-- write adds a list to a key, in commands that unpack can bear. A write can be refused for
-- the type of its key, or by an ACL that allows some of the commands or keys; after that
-- nothing more is written.
local failure
local function write(command, key, list)
  for i = 1, #list, 1000 do
    if not failure then
      local done = redis.pcall(command, key, unpack(list, i, math.min(i + 999, #list)))
      failure = type(done) == 'table' and done.err
    end
  end
end
