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
