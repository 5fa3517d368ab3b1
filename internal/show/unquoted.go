package show

import "strings"

// beginning is where a server that does not know a command begins to quote up to 128 bytes of its arguments: tokens,
// ids with idempotency keys, bodies.
const beginning = ", with args beginning with"

// Unquoted returns err without the arguments that it quotes.
func Unquoted(err error) error {
	if err == nil {
		return nil
	}
	if text, _, quotes := strings.Cut(err.Error(), beginning); quotes {
		return reply(text)
	}
	return err
}

// reply is an error of the server, a redis.Error.
type reply string

func (r reply) Error() string { return string(r) }

// RedisError makes it one.
func (reply) RedisError() {}
