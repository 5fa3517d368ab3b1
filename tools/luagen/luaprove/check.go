package luaprove

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// mostSteps bounds the failing writes of one call, and the repeats of a script that goes on with its work.
const mostSteps = 100

// Result counts what was tried, and holds the first call that broke a promise. Changes are the calls that changed data
// or sent a message.
type Result struct {
	Calls, Changes, Repeats, Faults, WrongTypes int
	Broken                                      string // "" when all held
}

// NotTried says why the promises of a script are open: one that may write keeps or breaks them where a call succeeds
// and changes something. It is "" where a call did.
func (r Result) NotTried(s *luagen.Script) string {
	switch {
	case r.Calls == 0:
		return "no call was made"
	case !s.ReadOnly && r.Changes == 0:
		return "no call that succeeds changes anything"
	}
	return ""
}

// checker holds calls of one script against its header.
type checker struct {
	c      *redis.Client
	script *luagen.Script
	fault  Fault
	result Result
}

// Check runs one call on what the client's database holds, and again and again on the same data: repeated, with each of
// its writes failing, and with each key of a wrong type. The database is emptied at the end.
func Check(ctx context.Context, c *redis.Client, s *luagen.Script, in Input, now int64) (Result, error) {
	k, err := newChecker(ctx, c, s)
	if err != nil {
		return Result{}, err
	}
	rows, err := c.Eval(ctx, readAll, nil).Result()
	if err != nil {
		return Result{}, err
	}
	from, err := read(rows)
	if err == nil {
		k.fault.Clock = unix(now)
		err = k.call(ctx, from, in)
	}
	if err == nil {
		err = c.FlushDB(ctx).Err()
	}
	return k.result, err
}

func newChecker(ctx context.Context, c *redis.Client, s *luagen.Script) (*checker, error) {
	writes, err := WriteCommands(ctx, c)
	if err != nil {
		return nil, err
	}
	fault := Fault{writes, reachedKey, unix(now)}
	if _, err := luaast.Parse(fault.Text(s.Source, 0)); err != nil {
		return nil, fmt.Errorf("%s cannot be proven: its redis is a local that fails, and with it there is, at %w: "+
			"take what it does not need out of that function", s.File, err)
	}
	return &checker{c: c, script: s, fault: fault}, nil
}

// run is one run of the script, its n-th write failing.
func (k *checker) run(ctx context.Context, from state, in Input, n int) (outcome, error) {
	return run(ctx, k.c, from, k.fault.Text(k.script.Source, n), in)
}

// call holds one call on one state against the header.
func (k *checker) call(ctx context.Context, from state, in Input) error {
	want, err := k.run(ctx, from, in, 0)
	if err != nil {
		return err
	}
	k.result.Calls++
	switch atomic := k.atomic(in); {
	case k.script.ReadOnly && !from.same(want.left):
		return k.broken("V003: @readonly, and the call changed data", in, from, want.left)
	case want.failed != "" && atomic && !from.same(want.left):
		return k.broken(halfway+want.failed, in, from, want.left)
	case k.script.ReadOnly:
		return nil
	}
	if want.failed == "" && !from.same(want.left) {
		k.result.Changes++
	}
	steps := []func(context.Context, state, Input, outcome) error{k.repeat, k.rows, k.faults, k.wrongTypes}
	if want.failed != "" {
		steps = steps[3:]
	}
	for _, step := range steps {
		if err := step(ctx, from, in, want); err != nil || k.result.Broken != "" {
			return err
		}
	}
	return nil
}

// atomic reports whether the contract is all or nothing for this call. In a script for many each row is a call of its
// own.
func (k *checker) atomic(in Input) bool {
	return k.script.Contract.Word == "all-or-nothing" && !k.many(in)
}

func (k *checker) many(in Input) bool { return k.script.Merge > 0 && len(in.Keys) > len(k.script.Keys) }

const halfway = "V002: all-or-nothing, and a call that failed left something behind: "

// repeat is the second run of a call whose reply was lost.
func (k *checker) repeat(ctx context.Context, from state, in Input, want outcome) error {
	word := k.script.Retry.Word
	if word != "safe" && word != "resume" {
		return nil
	}
	k.result.Repeats++
	if word == "resume" {
		_, err := k.toItsEnd(ctx, want.left, in)
		return err
	}
	again, err := k.run(ctx, want.left, in, 0)
	if err != nil || k.allows("T001") {
		return err
	}
	loose := k.allowed("V001", in)
	if !again.left.loosened(loose).same(want.left.loosened(loose)) {
		return k.broken("V001: @retry safe, and a repeat changed what the first run left", in, want.left, again.left)
	}
	return nil
}

// allows reports whether the header accepts what a rule finds.
func (k *checker) allows(rule string) bool {
	return slices.ContainsFunc(k.script.Allows, func(a luagen.Allow) bool { return a.Rule == rule })
}

// named are the keys that an @allow speaks of: ---@allow V002 failures, control: reason.
var named = regexp.MustCompile(`^([a-z][a-z0-9_]*(?:, [a-z][a-z0-9_]*)*): `)

// allowed are the keys of a call for which the header accepts what a rule finds; all where it names none.
func (k *checker) allowed(rule string, in Input) map[string]bool {
	out := map[string]bool{}
	for _, a := range k.script.Allows {
		if a.Rule != rule {
			continue
		}
		found := named.FindStringSubmatch(a.Reason)
		for i, key := range in.Keys {
			if found == nil || slices.Contains(strings.Split(found[1], ", "), declared(k.script, i).Name) {
				out[key] = true
			}
		}
	}
	return out
}

// toItsEnd repeats a call that goes on with its work until nothing is left to do.
func (k *checker) toItsEnd(ctx context.Context, from state, in Input) (state, error) {
	for range mostSteps {
		next, err := k.run(ctx, from, in, 0)
		if err != nil || next.left.same(from) {
			return from, err
		}
		from = next.left
	}
	return from, k.broken(fmt.Sprintf("V001: @retry resume, and %d repeats do not come to an end", mostSteps),
		in, from, from)
}

// faults fails each write of the call, and looks at what is left and at what a repeat makes of it. A call of many rows
// is sent again row by row: each row is a call of its own.
func (k *checker) faults(ctx context.Context, from state, in Input, want outcome) error {
	if k.many(in) {
		return nil
	}
	told := false
	defer func() {
		if told && from.same(want.left) {
			k.result.Changes++ // what listens has changed
		}
	}()
	for n := 1; n <= mostSteps; n++ {
		got, err := k.run(ctx, from, in, n)
		if err != nil || got.reached == "" {
			return err
		}
		k.result.Faults++
		told = told || strings.HasSuffix(got.reached, "publish")
		if got.failed == "" {
			continue // the script goes on without that write
		}
		if err := k.left(ctx, from, in, want, got); err != nil || k.result.Broken != "" {
			return err
		}
	}
	return nil
}

// left holds the data after a failed write against the contract.
func (k *checker) left(ctx context.Context, from state, in Input, want, got outcome) error {
	but := k.allowed("V002", in)
	if k.script.Contract.Word == "all-or-nothing" {
		if !from.without(but).same(got.left.without(but)) {
			return k.broken(halfway+got.failed, in, from, got.left)
		}
		return nil
	}
	if lost := missing(both(from.things(), want.left.things()), got.left, but); lost != "" {
		return k.broken("V002: dup-only, and "+lost+" is lost after "+got.failed, in, from, got.left)
	}
	switch k.script.Retry.Word {
	case "safe":
		again, err := k.run(ctx, got.left, in, 0)
		if err != nil {
			return err
		}
		if lost := missing(want.left.things(), again.left, but); lost != "" {
			return k.broken("V002: dup-only, and a repeat does not make up for "+lost+" after "+got.failed, in,
				got.left, again.left)
		}
	case "resume":
		end, err := k.toItsEnd(ctx, want.left, in)
		if err != nil || k.result.Broken != "" {
			return err
		}
		again, err := k.toItsEnd(ctx, got.left, in)
		if err != nil || k.result.Broken != "" {
			return err
		}
		if lost := missing(end.things(), again, but); lost != "" {
			return k.broken("V002: dup-only, and repeats do not make up for "+lost+" after "+got.failed, in,
				got.left, again)
		}
	}
	return nil
}

// wrongTypes calls with each key of another type, which some command refuses.
func (k *checker) wrongTypes(ctx context.Context, from state, in Input, _ outcome) error {
	if !k.atomic(in) {
		return nil
	}
	for i, key := range in.Keys {
		commands := [][]any{{"SET", key, "wrong"}}
		if declared(k.script, i).Type == "string" {
			commands = [][]any{{"SADD", key, "wrong"}}
		}
		wrong, err := stored(ctx, k.c, commands)
		if err != nil {
			return err
		}
		for _, e := range from {
			if e.key != key {
				wrong = append(wrong, e)
			}
		}
		wrong = sorted(wrong)
		got, err := k.run(ctx, wrong, in, 0)
		if err != nil {
			return err
		}
		if got.failed == "" {
			continue
		}
		k.result.WrongTypes++
		if !wrong.same(got.left) {
			return k.broken(halfway+got.failed, in, wrong, got.left)
		}
	}
	return nil
}

// cures are what to do about each rule.
var cures = map[string]string{
	"V001": "let a repeat find a mark of the first run, declare @retry resume where it goes on with the work, or " +
		"@retry never",
	"V002": "write once, undo what was written, add before you remove, or say what is left: ---@contract dup-only, " +
		"---@allow V002 key: reason",
	"V003": "remove @readonly",
	"V004": "go through all rows, and let none find what another one of the same call has not written yet",
}

func (k *checker) broken(what string, in Input, before, after state) error {
	k.result.Broken = fmt.Sprintf("%s\n  KEYS %q\n  ARGV %q\n  before\n%s  after\n%s  = %s\n", what, in.Keys, in.Args,
		indent(before.String()), indent(after.String()), cures[what[:4]])
	return nil
}

func indent(dump string) string {
	if dump == "" {
		return "    nothing\n"
	}
	return "    " + strings.ReplaceAll(strings.TrimSuffix(dump, "\n"), "\n", "\n    ") + "\n"
}
