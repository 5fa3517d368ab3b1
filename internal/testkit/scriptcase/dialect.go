package scriptcase

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/lua"
)

// dialectCall is a call of a script that is a dialect's own. Its keys hold what their
// names say.
type dialectCall struct {
	script string
	keys   string // separated by spaces
	args   []string
}

func (d dialectCall) raw(dialect string, script *lua.Script) RawCall {
	return RawCall{Script: script, Name: dialect + "/" + d.script, SHA: script.SHA, Keys: strings.Fields(d.keys),
		Args: d.args,
		Prepare: func(ctx context.Context, c *redis.Client) error {
			var all error
			for key, value := range dialectData[dialect] {
				switch v := value.(type) {
				case string:
					all = errors.Join(all, c.Set(ctx, key, v, 0).Err())
				case []string:
					all = errors.Join(all, c.RPush(ctx, key, v).Err())
				case map[string]string:
					all = errors.Join(all, c.HSet(ctx, key, v).Err())
				case []redis.Z:
					all = errors.Join(all, c.ZAdd(ctx, key, v...).Err())
				}
			}
			return all
		}}
}

const dueJob = `{"queue":"a","enqueued_at":1.5}`

var dialectData = map[string]map[string]any{
	"actionhero": {
		"lock": "me", "item": `{"value":{"a":1},"expireTimestamp":32503680000000,"createdAt":1,"readAt":null}`,
	},
	"plainlock": {"held": "me", "held:fence": "7"},
	"redisinaction": {
		"held": "me", "queue": []string{"a", "b"}, "queue2": []string{"c"}, "busy": []string{"a"},
		"delayed": []redis.Z{{Score: 1, Member: "a"}, {Score: 2.5, Member: "b"}, {Score: 4e9, Member: "later"}},
	},
	"sidekiq": {
		"retry":     []redis.Z{{Score: 1, Member: dueJob}, {Score: 2, Member: "other"}, {Score: 1e11, Member: "later"}},
		"dead":      []redis.Z{{Score: 1, Member: "old"}, {Score: 1e9, Member: "new"}},
		"processes": []redis.Z{{Score: 1, Member: "lapsed"}, {Score: 9e12, Member: "alive"}},
		"working":   map[string]string{"1": "7:queue:aone", "2": "7:queue:atwo", "3": "7:queue:bthree", "last": "3"},
		"queue:a":   []string{"four", "five"}, "queue:b": []string{"six"}, "long_since": "1",
	},
}

var dialectCalls = map[string][]dialectCall{
	"actionhero": {
		{"cache_check", "lock", nil},
		{"cache_destroy", "lock item", []string{"me"}},
		{"cache_load", "lock item", []string{"me", "60000"}},
		{"cache_lock", "lock", []string{"me", "60", "1", "0"}},
		{"cache_save", "lock item", []string{"me", "1", "60000", "1"}},
		{"cache_unlock", "lock", []string{"me", "0"}},
	},
	"plainlock": {
		{"acquire", "free", []string{"me", "60000"}},
		{"acquire", "free held:fence", []string{"me", "60000"}},
		{"acquire", "held held:fence", []string{"you", "60000"}},
		{"extend", "held", []string{"me", "60000"}},
		{"release", "held", []string{"me", "released"}},
	},
	"redisinaction": {
		{"acquire_lock", "free", []string{"me", "60000", "0"}},
		{"acquire_lock", "held", []string{"you", "60000", "60000"}},
		{"due", "delayed", []string{"0", "10", "1000"}},
		{"execute_later", "delayed queue receipt", []string{"60000", "0", "x", "1000000", "y"}},
		{"extend_lock", "held", []string{"me", "60000"}},
		{"move_due", "delayed queue queue2", []string{"1", "1", "a", "2", "2.5", "b"}},
		{"quarantine", "busy malformed", []string{"a"}},
		{"release_lock", "held", []string{"me"}},
		{"take", "working queue queue2", nil},
	},
	"sidekiq": {
		{"delete", "retry", []string{dueJob}},
		{"decline", "working schedule since", []string{"1", "1000", "one"}},
		{"decline", "working retry long_since", []string{"1", "1000", "other"}},
		{"due", "retry", []string{"0", "10", "1000"}},
		{"move", "retry queues queue:a queue:b", []string{"6", "0",
			"\x00\x01\x00\x00\x00\x1b\x00\x00\x00\x1e\x00\x02\x00\x00\x00\x01\x00\x00\x00\x01",
			dueJob, "other"}},
		{"push", "queues schedule queue:a queue:b", []string{"6", "0", "1000", "1:1:;2:1:=;1:1:+100;", "{1",
			"{2}", "{3"}},
		{"push", "queues schedule queue:a", []string{"6", "0", "1000", "1:1:=;1:1:~3,1;1:1:=;", "{1}", "{2}", "{3}"}},
		{"push_once", "receipt queues schedule queue:a queue:b", []string{"60000", "6", "0", "1:1:;2:1:=;1:1:+100;",
			"digest", "{1", "{2}", "{3"}},
		{"quarantine", "retry retry:quarantine", []string{dueJob, "gone"}},
		{"reschedule", "retry receipt", []string{dueJob, "77.5"}},
		{"retry_bury", "working dead processed processed_day failed failed_day",
			[]string{"1", "2", "3600", "4", "{", "}"}},
		{"retry_bury", "working dead processed processed_day failed failed_day",
			[]string{"1", "0", "3600", "4", "{}"}},
		{"retry_drop", "working processed processed_day failed failed_day", []string{"1"}},
		{"retry_later", "working retry processed processed_day failed failed_day", []string{"1", "1", "60", "{", "}"}},
		{"stats", "schedule retry dead identities processed failed queue:a queue:b", nil},
		{"worker_aside", "processes working rescued retry processed processed_day failed failed_day",
			[]string{"lapsed", "1", "one", "1", "60", "0", "0", "{", "}"}},
		{"worker_aside", "processes working rescued dead processed processed_day failed failed_day",
			[]string{"lapsed", "1", "one", "0", "0", "3600", "4", "{", "}"}},
		{"worker_beat", "processes working", []string{"new", "60000", "0", "10", "1", "99"}},
		{"worker_return", "processes working queues queue:a page lapsed lapsed-signals rescued lapsed:work",
			[]string{"lapsed", "1", "a", "2", "two", "1", "one"}},
		{"worker_take", "processes working processed day queue:a queue:b",
			[]string{"new", "60000", "100000", "500", "1"}},
		{"worker_take", "processes working processed day queue:a queue:b", []string{"new", "60000", "1", "4"}},
	},
}
