package luaprove

import (
	"context"
	"fmt"
	"regexp"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// places are what differs in the errors of two scripts that do the same: digests and lines.
var places = regexp.MustCompile(`[0-9a-f]{40}|user_script:\d+|, on @user_script.*`)

// Same runs n calls with both texts of a script on the same data, and describes the first call after which replies, errors or
// data differ; "" when none does. The database of the client is emptied.
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
		var outcomes [2]string
		for i, text := range []string{one, other} {
			got, err := run(ctx, c, from, fault.Text(text, 0), in)
			if err != nil {
				return "", err
			}
			outcomes[i] = got.reply + places.ReplaceAllString(got.failed, "") + "\n" + got.left.String()
		}
		if outcomes[0] != outcomes[1] {
			return fmt.Sprintf("KEYS %q\n  ARGV %q\n  one\n%s  other\n%s", in.Keys, in.Args,
				indent(outcomes[0]), indent(outcomes[1])), nil
		}
	}
	return "", nil
}
