-- The first line of a record has its state, attempt and node; the second the digest and the callers.
-- The letter of the state is the version of the record, too: another version has other letters.
local kind, attempt, owner, stop, line, last = string.match(value, '^([pdrl])(%d+) ([^\n]*)()\n([^\n]*)()\n')
if not kind then
  return redis.error_reply('LAYOUT the key holds no call of this version')
end
attempt = tonumber(attempt)
