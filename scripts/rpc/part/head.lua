-- The names of one caller fit; those of more are read at a second look. A large request is not
-- read: the server's Lua hashes every byte of a string.
local head = redis.pcall('GETRANGE', record, 0, 255)
if #head == 256 and not string.find(head, '\n', (string.find(head, '\n', 1, true) or 256) + 1, true) then
  head = redis.pcall('GETRANGE', record, 0, 4095)
end
