package luaprove

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// Fault makes the text of a script whose clock stands still and, if wanted, one of whose writes fails once.
type Fault struct {
	// Writes are the commands that count, as WriteCommands returns them.
	Writes string
	// Reached is a key that is set to the command when the write is reached.
	Reached string
	// Clock is the time that the script reads.
	Clock time.Time
}

// prefix stands on the script's first line, so that errors keep their line. In it redis is a table that counts the
// writes and fails one of them.
const prefix = `local redis = (function(real) ` +
	`local writes, at, reached, seconds, micros, n = %s, %d, '%s', '%d', '%d', 0 ` +
	`local function fails(c, sub) local name = string.lower(c) ` +
	`if not writes[name] then name = name .. '|' .. string.lower(tostring(sub)) end ` +
	`if not writes[name] then return false end n = n + 1 ` +
	`if n ~= at then return false end real.call('SET', reached, name) return true end ` +
	`local function faulty(f, raise) return function(c, ...) ` +
	`if string.lower(c) == 'time' then return {seconds, micros} end ` +
	`if fails(c, ...) then local e = {err = 'ERR failpoint ' .. n .. ', ' .. c} if raise then error(e) end return e end ` +
	`return f(c, ...) end end ` +
	`return setmetatable({call = faulty(real.call, true), pcall = faulty(real.pcall, false)}, {__index = real}) end)(redis)`

// other is for scripts that call redis by the name server, which Valkey has besides.
const other = ` local server = (function(has) return has and redis or nil end)(pcall(function() return server end))`

// Text returns the script with its n-th write failing; 0 for none.
func (f Fault) Text(source string, n int) string {
	head := fmt.Sprintf(prefix, f.Writes, n, f.Reached, f.Clock.Unix(), f.Clock.Nanosecond()/1000)
	if strings.Contains(source, "server") {
		head += other
	}
	return luaast.Behind(head, source)
}

// WriteCommands returns the commands that change data according to the server, subcommands as xgroup|create, and
// PUBLISH, as a Lua table.
func WriteCommands(ctx context.Context, c redis.Cmdable) (string, error) {
	names, err := c.CommandList(ctx, &redis.FilterBy{ACLCat: "write"}).Result()
	if err != nil {
		return "", fmt.Errorf("luaprove: the commands of the server: %w", err)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(slices.Values(append(names, "publish", "spublish"))) {
		fmt.Fprintf(&b, "['%s']=1,", strings.ToLower(name))
	}
	return "{" + b.String() + "}", nil
}
