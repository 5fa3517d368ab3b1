package luaprove

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// places are what differs in the errors of two scripts that do the same: digests and lines.
var places = regexp.MustCompile(`[0-9a-f]{40}|user_script:\d+|, on @user_script.*`)

// Same runs n calls with both texts of a script on the same data, and describes the first call after which replies,
// errors or data differ; "" when none does. The database of the client is emptied.
func Same(
	ctx context.Context,
	c *redis.Client,
	s *luagen.Script,
	one, other string,
	n int,
	seed uint64,
) (string, error) {
	writes, err := WriteCommands(ctx, c)
	if err != nil {
		return "", err
	}
	fault := Fault{writes, reachedKey, unix(now)}
	p := &prover{checker: &checker{c: c, script: s, fault: fault}, source: newSource(s, seed)}
	for range n {
		in := p.input()
		from, err := p.prepared(ctx, in)
		if err != nil {
			return "", err
		}
		var got [2]outcome
		for i, text := range []string{one, other} {
			if got[i], err = run(ctx, c, from, fault.Text(text, 0), in); err != nil {
				return "", err
			}
		}
		if a, b := got[0], got[1]; a.said() != b.said() || !a.left.anonymous().same(b.left.anonymous()) {
			return fmt.Sprintf("KEYS %q\n  ARGV %q\n  one\n%s  other\n%s", in.Keys, in.Args,
				indent(a.said()+a.left.String()), indent(b.said()+b.left.String())), nil
		}
	}
	return "", nil
}

// said is the reply or the error, without what differs in those of two scripts that do the same.
func (o outcome) said() string { return o.reply + places.ReplaceAllString(o.failed, "") + "\n" }

// ids are those of a stream's entries, which hold the time of the server.
var ids = regexp.MustCompile(`\b\d{13}-\d+\b`)

// anonymous is the state without the ids that a server draws.
func (s state) anonymous() state {
	out := slices.Clone(s)
	for i, e := range out {
		if e.typ == "stream" {
			out[i].elements = slices.Clone(e.elements)
			for at, text := range e.elements {
				out[i].elements[at] = ids.ReplaceAllString(text, "id")
			}
		}
	}
	return out
}
