package lab

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/lua"
)

// BytesRead runs a script and returns how many bytes of strings its commands have returned to Lua. It measures what a
// script reads to throw away, which no reply shows.
func BytesRead(ctx context.Context, c redis.Scripter, s *lua.Script, keys []string, args ...any) (int64, error) {
	const count = `
local read = 0
local function sum(reply)
  if type(reply) == 'table' then
    for i = 1, #reply do sum(reply[i]) end
  elseif type(reply) == 'string' then
    read = read + #reply
  end
  return reply
end
local server = redis
local redis = setmetatable({call = function(...) return sum(server.call(...)) end}, {__index = server})
local function script()
`
	return c.Eval(ctx, count+Text(c, s)+"\nend\nscript()\nreturn read", keys, args...).Int64()
}
