package scriptcase

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

const (
	hostileTime   = 20 * time.Second // a call takes some ms; one that hangs never ends
	hostileMemory = 64 << 20         // the largest request is 15 MiB
	grownSize     = 600              // elements that a key has in the state "grown"
)

// Dumped is a key as RESTORE takes it.
type Dumped struct {
	Key, Value string
	TTL        time.Duration
}

// HostileServer is a server of its own: one that a script holds up is killed.
type HostileServer struct {
	t      *testing.T
	ctx    context.Context
	server *luatomictest.Server
	c      *redis.Client

	// Call is that of the last Open, States its data.
	Call   RawCall
	States map[string][]Dumped
	state  string // what the server has now; empty when a call has changed it
	Sent   int

	Prelude string // Lua to run before each script
	sha     string // of the text that the server has
}

// NewHostileServer starts one for this test.
func NewHostileServer(t *testing.T) *HostileServer {
	s := &HostileServer{t: t, ctx: t.Context(), server: luatomictest.StartServer(t)}
	s.c = s.server.Client(func(o *redis.Options) {
		o.ReadTimeout, o.MaxRetries = hostileTime, -1
	})
	return s
}

// Open loads the script of a call and makes its data: none; what the call finds; many
// elements more; and what the call leaves.
func (s *HostileServer) Open(call RawCall) {
	s.Call, s.States = call, map[string][]Dumped{"empty": nil}
	s.load()
	require.NoError(s.t, s.c.FlushAll(s.ctx).Err())
	require.NoError(s.t, call.Prepare(s.ctx, s.c))
	s.States["filled"] = s.dump()
	for _, key := range s.c.Keys(s.ctx, "*").Val() {
		require.NoError(s.t, s.c.Eval(s.ctx, growKey, []string{key}, grownSize).Err())
	}
	s.States["grown"] = s.dump()
	s.state = ""
	s.Fill("filled")
	require.NoError(s.t, s.Run(call.Keys, call.Args).Err, call.Name)
	s.States["called"] = s.dump()
	s.state = ""
}

// load gives the server the text of the call, or the one that runs in its place where luagen measures coverage or runs
// a mutant.
func (s *HostileServer) load() {
	source := lab.Text(s.c, s.Call.Script)
	text := lua.Text{Source: &source}
	if s.Call.SHA != s.Call.Script.SHA {
		text.Guard = s.Call.Script.Guarded.Guard
	}
	sha, err := s.c.ScriptLoad(s.ctx, s.Prelude+text.String()).Result()
	require.NoError(s.t, err)
	s.sha = sha
}

// growKey adds elements that look like those of the key.
const growKey = `
local key, n = KEYS[1], tonumber(ARGV[1])
local kind = redis.call('TYPE', key).ok
if kind == 'list' then
  local all = redis.call('LRANGE', key, 0, -1)
  for i = 1, n do redis.call('RPUSH', key, all[i % #all + 1]) end
elseif kind == 'zset' then
  local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, n do
    local at = 2 * (i % (#all / 2)) + 1
    redis.call('ZADD', key, all[at + 1], all[at] .. i)
  end
elseif kind == 'hash' then
  local all = redis.call('HGETALL', key)
  for i = 1, n do
    local at = 2 * (i % (#all / 2)) + 1
    redis.call('HSETNX', key, i, all[at + 1])
    redis.call('HSETNX', key, all[at] .. i, all[at + 1])
  end
end
return 1`

func (s *HostileServer) dump() (out []Dumped) {
	for _, key := range s.c.Keys(s.ctx, "*").Val() {
		out = append(out, Dumped{key, s.c.Dump(s.ctx, key).Val(), max(0, s.c.PTTL(s.ctx, key).Val())})
	}
	return out
}

// Fill puts the data back unless the server has it.
func (s *HostileServer) Fill(state string) {
	if s.state == state {
		return
	}
	pipe := s.c.Pipeline()
	pipe.FlushAllAsync(s.ctx) // FLUSHALL purges the allocator, which takes longer than the call
	for _, d := range s.States[state] {
		pipe.Restore(s.ctx, d.Key, d.TTL, d.Value)
	}
	_, err := pipe.Exec(s.ctx)
	require.NoError(s.t, err)
	s.state = state
}

// Spoil replaces the first values of a key by a text, or puts it behind or before them.
func (s *HostileServer) Spoil(state, key, text, mode string) {
	s.Fill(state)
	require.NoError(s.t, s.c.Eval(s.ctx, spoilKey, []string{key}, text, mode).Err())
	s.state = "spoilt"
}

const spoilKey = `
local key, text, mode = KEYS[1], ARGV[1], ARGV[2]
local kind = redis.call('TYPE', key).ok
local function spoilt(v) return mode == 'replaced' and text or mode == 'continued' and v .. text or text .. v end
if kind == 'string' then
  redis.call('SET', key, spoilt(redis.call('GET', key)), 'KEEPTTL')
elseif kind == 'list' then
  for i, v in ipairs(redis.call('LRANGE', key, 0, 1)) do redis.call('LSET', key, i - 1, spoilt(v)) end
elseif kind == 'hash' then
  local all = redis.call('HGETALL', key)
  for i = 1, math.min(#all, 4), 2 do redis.call('HSET', key, all[i], spoilt(all[i + 1])) end
elseif kind == 'zset' then
  local all = redis.call('ZRANGE', key, 0, 1, 'WITHSCORES')
  for i = 1, #all, 2 do
    redis.call('ZREM', key, all[i])
    redis.call('ZADD', key, all[i + 1], spoilt(all[i]) .. (i == 1 and '' or i))
  end
end
return 1`

// Ends calls the script on data in that state and says whether it came back in time,
// without much memory; any answer is right.
func (s *HostileServer) Ends(state, what string, keys, args []string) bool {
	s.Fill(state)
	s.Sent++
	reply := s.Run(keys, args)
	switch {
	case reply.Late != nil:
		s.t.Errorf("%s does not end within %v: %s: %v", s.Call.Name, hostileTime, what, reply.Late)
	case reply.Lua > hostileMemory:
		s.t.Errorf("%s makes Lua take %d MiB: %s", s.Call.Name, reply.Lua>>20, what)
	case reply.Grown > hostileMemory:
		s.t.Errorf("%s makes the data grow by %d MiB: %s", s.Call.Name, reply.Grown>>20, what)
	default:
		return true
	}
	// It may be held up for good.
	s.server.Restart()
	s.state = "empty"
	s.load()
	return false
}

// HostileReply is what came of a call.
type HostileReply struct {
	Err     error // what the script answered
	Late    error // no answer in time
	Changed bool  // there was a write
	Lua     int   // the memory of Lua afterwards, in bytes
	Grown   int   // how much the server's memory has grown, without that of Lua
}

// Run calls the script with these keys and arguments on the data that is there.
func (s *HostileServer) Run(keys, args []string) (out HostileReply) {
	line := []any{"EVALSHA", s.sha, len(keys)}
	for _, v := range slices.Concat(keys, args) {
		line = append(line, v)
	}
	pipe := s.c.Pipeline()
	before := pipe.Info(s.ctx, "persistence", "memory")
	call := pipe.Do(s.ctx, line...)
	after := pipe.Info(s.ctx, "persistence", "memory")
	_, _ = pipe.Exec(s.ctx)
	out.Err = call.Err()
	if errors.Is(out.Err, redis.Nil) {
		out.Err = nil
	}
	var refused redis.Error
	if out.Err != nil && !errors.As(out.Err, &refused) {
		out.Late = out.Err
		return out
	}
	field := func(info *redis.StringCmd, name string) int {
		_, rest, _ := strings.Cut(info.Val(), "\n"+name+":")
		line, _, _ := strings.Cut(rest, "\r")
		return lab.Must(strconv.Atoi(line))
	}
	out.Changed = field(before, "rdb_changes_since_last_save") != field(after, "rdb_changes_since_last_save")
	if out.Changed {
		s.state = ""
	}
	out.Lua, out.Grown = field(after, "used_memory_lua"), field(after, "used_memory")-field(before, "used_memory")
	return out
}
