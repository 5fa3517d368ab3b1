package luaprove

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// readAll returns type, milliseconds to live, elements and DUMP of each key. Sets and hashes have no order of their
// own. Of a stream it returns pairs: entries and their fields, the last id, groups, their consumers and what is
// pending.
const readAll = `
local function fields(info)
  local out = {}
  for i = 1, #info, 2 do out[info[i]] = info[i + 1] end
  return out
end
local function stream(key)
  local v = {}
  local function add(name, ...) v[#v + 1] = name v[#v + 1] = table.concat({...}, ' ') end
  for _, e in ipairs(redis.call('XRANGE', key, '-', '+')) do add(e[1], unpack(e[2])) end
  add('last id', fields(redis.call('XINFO', 'STREAM', key))['last-generated-id'])
  for _, g in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    g = fields(g)
    add('group ' .. g.name, g['last-delivered-id'])
    for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', key, g.name)) do add('consumer ' .. g.name, fields(c).name) end
    for _, p in ipairs(redis.call('XPENDING', key, g.name, '-', '+', 1000)) do add('pending ' .. g.name, p[1], p[2], p[4]) end
  end
  return v
end
local out = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  local t = redis.call('TYPE', key).ok
  local v
  if t == 'string' then v = {redis.call('GET', key)}
  elseif t == 'list' then v = redis.call('LRANGE', key, 0, -1)
  elseif t == 'set' then v = redis.call('SMEMBERS', key)
  elseif t == 'zset' then v = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif t == 'hash' then v = redis.call('HGETALL', key)
  else v = stream(key) end
  out[i] = {key, t, redis.call('PTTL', key), redis.call('DUMP', key), v}
end
return out`

// entry is one key of the database.
type entry struct {
	key, typ, dump string
	ttl            int64
	late           time.Duration // how much less than the run has left ttl may be: it is read a while after
	elements       []string      // fields and values, members and scores
}

// state is all keys of the database, in the order of their names.
type state []entry

// read decodes the reply of readAll.
func read(reply any) (state, error) {
	rows, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("luaprove: the data of the server cannot be read: %v", reply)
	}
	var out state
	for _, r := range rows {
		row := r.([]any)
		e := entry{key: row[0].(string), typ: row[1].(string), ttl: row[2].(int64), dump: row[3].(string)}
		for _, v := range row[4].([]any) {
			e.elements = append(e.elements, v.(string))
		}
		out = append(out, e)
	}
	return sorted(out), nil
}

func sorted(s state) state {
	slices.SortFunc(s, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	return s
}

// restore adds to a pipeline the commands that make the database hold this state and nothing else.
func (s state) restore(ctx context.Context, pipe redis.Pipeliner) {
	pipe.FlushDB(ctx)
	for _, e := range s {
		ttl := max(e.ttl, 1) // 0 is for ever
		if e.ttl < 0 {
			ttl = 0
		}
		pipe.Restore(ctx, e.key, time.Duration(ttl)*time.Millisecond, e.dump)
	}
}

// String is a line for each key: its type, its elements in an order that says something, and when it expires.
func (s state) String() string {
	var b strings.Builder
	for _, e := range s {
		expires := ""
		if e.ttl >= 0 {
			expires = fmt.Sprintf(", expires in %d ms", e.ttl)
		}
		fmt.Fprintf(&b, "%q %s %q%s\n", e.key, e.typ, e.ordered(), expires)
	}
	return b.String()
}

// slack is what times to live lose by rounding.
const slack = 5 * time.Millisecond

// same reports whether two states hold the same, times to live apart by no more than shows that they were read late.
func (s state) same(other state) bool {
	return slices.EqualFunc(s, other, func(a, b entry) bool {
		apart := time.Duration(max(a.ttl-b.ttl, b.ttl-a.ttl)) * time.Millisecond
		return a.key == b.key && a.typ == b.typ && (a.ttl < 0) == (b.ttl < 0) && apart <= a.late+b.late+slack &&
			slices.Equal(a.ordered(), b.ordered())
	})
}

// ordered are the elements, those of a set or a hash sorted.
func (e entry) ordered() []string {
	switch e.typ {
	case "set":
		return slices.Sorted(slices.Values(e.elements))
	case "zset", "hash", "stream":
		var pairs []string
		for i := 0; i+1 < len(e.elements); i += 2 {
			pairs = append(pairs, e.elements[i]+"="+e.elements[i+1])
		}
		if e.typ == "hash" {
			slices.Sort(pairs)
		}
		return pairs
	}
	return e.elements
}

// things are what a script could lose: keys, elements, members and fields, without their scores and values.
func (s state) things() map[thing]bool {
	out := map[thing]bool{}
	for _, e := range s {
		for _, v := range e.names() {
			out[thing{e.key, v}] = true
		}
	}
	return out
}

// names are the elements without their scores and values.
func (e entry) names() []string {
	switch e.typ {
	case "list", "set":
		return e.elements
	case "zset", "hash":
		var out []string
		for i := 0; i < len(e.elements); i += 2 {
			out = append(out, e.elements[i])
		}
		return out
	case "stream": // a repeat that makes up for an entry gives it another id
		var out []string
		for i := 0; i+1 < len(e.elements) && e.elements[i] != "last id"; i += 2 {
			out = append(out, e.elements[i+1])
		}
		return append(out, "")
	}
	return []string{""}
}

// thing is an element of a key, or the key itself.
type thing struct{ key, element string }

func (t thing) String() string {
	if t.element == "" {
		return fmt.Sprintf("%q", t.key)
	}
	return fmt.Sprintf("%q in %q", t.element, t.key)
}

// missing is the first of the things that are not in a state, those of some keys aside; "" for none.
func missing(things map[thing]bool, in state, but map[string]bool) string {
	have := in.things()
	var out []string
	for t := range things {
		if !have[t] && !but[t.key] {
			out = append(out, t.String())
		}
	}
	if len(out) == 0 {
		return ""
	}
	return slices.Min(out)
}

// loosened is the state without the scores and values of some keys.
func (s state) loosened(keys map[string]bool) state {
	out := slices.Clone(s)
	for i, e := range out {
		if keys[e.key] {
			out[i].typ, out[i].elements = "some "+e.typ, slices.Sorted(slices.Values(e.names()))
		}
	}
	return out
}

// without is the state without some keys.
func (s state) without(keys map[string]bool) state {
	return slices.DeleteFunc(slices.Clone(s), func(e entry) bool { return keys[e.key] })
}

// both has what is in a and in b.
func both(a, b map[thing]bool) map[thing]bool {
	out := map[thing]bool{}
	for thing := range a {
		if b[thing] {
			out[thing] = true
		}
	}
	return out
}

// outcome is what a run has left, and how it ended.
type outcome struct {
	left    state
	reply   string
	failed  string // a refusal or a Lua error
	reached string // the command that had to fail
}

// reachedKey is set where a failing write is reached. It is no key of a script.
const reachedKey = "luaprove:reached"

// run makes the database hold a state, runs a text on it, and reads what is left: one round trip.
func run(ctx context.Context, c *redis.Client, from state, text string, in Input) (outcome, error) {
	args := make([]any, len(in.Args))
	for i, a := range in.Args {
		args[i] = a
	}
	pipe := c.Pipeline()
	from.restore(ctx, pipe)
	call := pipe.Eval(ctx, text, in.Keys, args...)
	after := pipe.Eval(ctx, readAll, nil)
	var reply redis.Error
	start := time.Now()
	if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil && !errors.As(err, &reply) {
		return outcome{}, err
	}
	rows, err := after.Result()
	if err != nil {
		return outcome{}, err
	}
	took, out := time.Since(start), outcome{reply: fmt.Sprint(call.Val())}
	if err := call.Err(); err != nil && err != redis.Nil {
		out.failed = err.Error()
	}
	if out.left, err = read(rows); err != nil {
		return outcome{}, err
	}
	for i := range out.left {
		out.left[i].late = took
	}
	out.left = slices.DeleteFunc(out.left, func(e entry) bool {
		if e.key == reachedKey {
			out.reached = e.elements[0]
		}
		return e.key == reachedKey
	})
	return out, nil
}

// stored reads what commands leave in an empty database.
func stored(ctx context.Context, c *redis.Client, commands [][]any) (state, error) {
	pipe := c.Pipeline()
	pipe.FlushDB(ctx)
	for _, cmd := range commands {
		pipe.Do(ctx, cmd...)
	}
	after := pipe.Eval(ctx, readAll, nil)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	return read(after.Val())
}
