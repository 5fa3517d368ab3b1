package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
)

// The dialects: the forms of keys, jobs and messages of other systems. Each command
// names those that it knows.
const (
	native        = "native"
	redisInAction = "redisinaction"
	actionHero    = "actionhero"
	plain         = "plain"
)

// dialectFlag accepts native, which is the empty string, and the others named.
func dialectFlag(fs *flag.FlagSet, into *string, others ...string) {
	all := append([]string{native}, others...)
	fs.Func("dialect", "form of the keys, jobs and messages: `NAME`, one of "+strings.Join(all, ", "),
		func(v string) error {
			switch {
			case v == native:
				*into = ""
				return nil
			case slices.Contains(others, v):
				*into = v
				return nil
			case len(others) == 0:
				return fmt.Errorf("the only dialect here is native")
			}
			return fmt.Errorf("the dialects here are %s", strings.Join(all, ", "))
		})
}

// afterIndex is the error of the only job of a call, without the names of the call and of
// its place in it: the caller prints a line number instead.
func afterIndex(err error, index string) error {
	if _, why, ok := strings.Cut(err.Error(), index); ok {
		return errors.New(why)
	}
	return err
}

// foreignFlags refuses flags that a dialect cannot honour. set has for each name whether
// the flag was given.
func foreignFlags(dialect string, set map[string]bool) error {
	var given []string
	for name, on := range set {
		if on {
			given = append(given, "--"+name)
		}
	}
	if len(given) == 0 {
		return nil
	}
	slices.Sort(given)
	return usagef("%s: not in the dialect %s; leave it out", strings.Join(given, ", "), dialect)
}
