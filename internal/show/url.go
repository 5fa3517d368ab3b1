package show

import (
	"fmt"
	"strings"
)

// URL returns an error of redis.ParseURL with the cure. It keeps the kind of the error and nothing that this may repeat
// of the URL, which can be a part of a password: what follows a colon, and what is quoted.
func UnquotedURL(err error) error {
	text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "redis: "), ": ")
	if strings.Contains(text, `"`) {
		text = "it cannot be read"
	}
	return fmt.Errorf("%s; write redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH; "+
		"in a password / ? # @ %% are written %%2F %%3F %%23 %%40 %%25", text)
}

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
