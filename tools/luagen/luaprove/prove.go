// Package luaprove holds a script against its header by running it on a real server: calls drawn from the declared
// types, on data that the declared types or the scripts beside it make, each repeated as after a lost reply, with each
// of its writes failing, and with each key of a wrong type.
package luaprove

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// Prove runs n calls of the script on the client's database, which must hold nothing of worth: it is emptied. The
// scripts beside it, where they write the same keys, make the data.
func Prove(
	ctx context.Context, c *redis.Client, s *luagen.Script, beside []*luagen.Script, n int, seed uint64,
) (Result, error) {
	k, err := newChecker(ctx, c, s)
	if err != nil {
		return Result{}, err
	}
	p := &prover{checker: k, source: newSource(s, seed), family: family(s, beside), made: map[string]bool{},
		patience: n / 4}
	for range n {
		in := p.input()
		from, err := p.prepared(ctx, in)
		if err == nil {
			err = p.call(ctx, from, in)
		}
		if err != nil || p.result.Broken != "" {
			return p.result, err
		}
	}
	return p.result, nil
}

// prover draws the calls of one script, and the data before them.
type prover struct {
	*checker
	*source
	family   []*source
	made     map[string]bool // keys that the family has made before some call
	patience int             // calls after which a key that the family has not made is one that it never makes
}

// family are the scripts that write what this one reads: those with a key of the same name, and of no other type.
func family(s *luagen.Script, beside []*luagen.Script) []*source {
	var out []*source
	for i, other := range beside {
		shared := 0
		for _, k := range other.Keys {
			at := slices.IndexFunc(s.Keys, func(mine luagen.Key) bool { return mine.Name == k.Name })
			switch {
			case at < 0:
			case s.Keys[at].Type != k.Type || len(s.Keys[at].Fields) > 0 || len(k.Fields) > 0:
				shared = -len(other.Keys)
			default:
				shared++
			}
		}
		if shared > 0 && !other.ReadOnly && other.VariadicKey() == nil && other.Stem != s.Stem {
			out = append(out, newSource(other, uint64(i)))
		}
	}
	return out
}

// prepared makes the data of a call: by calls of the family at earlier times, and by the declared types where there is
// no family, or none that makes the key: scripts that only take would find nothing.
func (p *prover) prepared(ctx context.Context, in Input) (state, error) {
	if len(p.family) == 0 {
		return p.drawn(ctx, in, nil)
	}
	var from state
	makers := append([]*source{p.source}, p.family...)
	for _, ago := range []time.Duration{time.Hour, time.Minute, 30 * time.Second, time.Second, 0, 0} {
		maker := makers[p.IntN(len(makers))]
		maker.Rand, maker.stored = p.Rand, from
		fault := p.fault
		fault.Clock = fault.Clock.Add(-ago)
		after, err := run(ctx, p.c, from, fault.Text(maker.script.Source, 0), maker.input())
		if err != nil {
			return nil, err
		}
		from = after.left
	}
	for _, e := range from {
		p.made[e.key] = true
	}
	if p.result.Calls < p.patience {
		return from, nil
	}
	more, err := p.drawn(ctx, in, p.made)
	return sorted(append(from, more...)), err
}

// drawn makes data of the declared types for the keys of a call but some.
func (p *prover) drawn(ctx context.Context, in Input, but map[string]bool) (state, error) {
	var commands [][]any
	for i, key := range in.Keys {
		typ := declared(p.checker.script, i).Type
		if but == nil || !but[key] && typ != "hash" { // the values of a family's hash have forms that are not drawn
			commands = append(commands, p.data(key, typ)...)
		}
	}
	return stored(ctx, p.c, commands)
}

// declared is what the header says of the i-th key of a call.
func declared(s *luagen.Script, i int) luagen.Key {
	if i < s.FixedKeys() {
		return s.Keys[i]
	}
	if k := s.VariadicKey(); k != nil {
		rest := k.Elements()
		return rest[(i-s.FixedKeys())%len(rest)]
	}
	return s.Keys[i%len(s.Keys)] // a row of a script for many
}

func unix(seconds int64) time.Time { return time.Unix(seconds, 123_456_000) }
