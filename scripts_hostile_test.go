package luatomic_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
)

// hostileNumbers replace an argument. Above 2^53 a number and the next one are the same.
var hostileNumbers = []string{
	"1e15", "30000000", "1e300", "9007199254740993", "-1", "-1e15", "nan", "inf", "-inf", "0x10", "2.5", "",
}

// hostileTexts are repeated to make a text of any size. A pattern that may start
// anywhere takes the square of their size.
var hostileTexts = []string{"x", "1", "1:", "1,", "1 ", "\t"}

const hostileSize = 512 << 10 // of one argument

func hostileText(unit string, size int) string { return strings.Repeat(unit, size/len(unit)) }

// A client may call a script by its digest with any arguments, also a client that may
// run nothing else. A script that has written cannot be killed. So each script ends
// soon whatever its arguments are, and takes little more memory than they do.
func TestScriptsWithHostileArguments(t *testing.T) {
	t.Parallel()
	eachRawCall(t, func(_ *testing.T, s *scriptcase.HostileServer) {
		for _, state := range []string{"empty", "filled", "grown"} {
			if state == "filled" || s.Call.SHA == s.Call.Script.SHA {
				hostileArguments(s, state)
				otherNumbers(s, state)
			}
		}
		longKeys(s)
		for _, b := range scriptcase.HeaderOf(s.Call.Script) {
			if b.Many() && s.Call.SHA == s.Call.Script.SHA {
				longAndMany(s, b)
			}
		}
	})
}

// The values of a key may be anything, too: they were written by a client that has the
// right to, and must not stop the server for all others.
func TestScriptsOnHostileData(t *testing.T) {
	t.Parallel()
	eachRawCall(t, func(_ *testing.T, s *scriptcase.HostileServer) {
		for _, state := range []string{"filled", "called"} {
			for _, d := range s.States[state] {
				spoilKey(s, state, d.Key)
			}
		}
	})
}

// The bounds of a header are checked in Go before a call is sent, and hold for a call
// that was not made there, too: it is refused with the name of the argument, before
// anything is written.
func TestBoundsOfEveryHeaderHoldInTheScript(t *testing.T) {
	t.Parallel()
	eachRawCall(t, func(t *testing.T, s *scriptcase.HostileServer) {
		most := 0
		for _, b := range scriptcase.HeaderOf(s.Call.Script) {
			if b.Max != "" {
				most++
			}
			switch {
			case s.Call.SHA != s.Call.Script.SHA:
			case (b.Many() || b.Tag == "merge") && b.Max != "":
				tooMany(t, s, b)
			case b.Tag == "arg" && b.Max != "":
				outOfBounds(t, s, b)
			case b.Tag == "arg" && b.Min != "":
				assert.False(t, with(s, b, b.Below()).Changed, "%s: %s is %s", s.Call.Name, b.Name, b.Below())
			}
		}
		require.Equal(t, strings.Count(*s.Call.Script.Source, " max="), most, "%s: a bound is not read", s.Call.Name)
	})
}

// eachRawCall opens each call on a server of its group.
func eachRawCall(t *testing.T, test func(t *testing.T, s *scriptcase.HostileServer)) {
	t.Helper()
	for name, calls := range scriptcase.RawCalls(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scriptcase.NewHostileServer(t)
			for _, call := range calls {
				s.Open(call)
				test(t, s)
			}
			t.Logf("%d calls", s.Sent)
		})
	}
}

// hostileArguments calls the script with each argument replaced, and with all of them.
func hostileArguments(s *scriptcase.HostileServer, state string) {
	values := slices.Clone(hostileNumbers)
	if state == "filled" {
		for _, unit := range hostileTexts[:3] {
			values = append(values, hostileText(unit, hostileSize))
		}
	}
	args := s.Call.Args
	fixed := min(len(args), 16) // of many that are alike, the first are enough
	for at := range fixed + 1 {
		for _, v := range values {
			what := fmt.Sprintf("%s, argument %d is %s", state, at+1, brief(v))
			hostile := slices.Clone(args)
			if at < fixed {
				hostile[at] = v
			} else {
				what = fmt.Sprintf("%s, all arguments are %s", state, brief(v))
				hostile = slices.Repeat([]string{v}, len(args))
			}
			if !s.Ends(state, what, s.Call.Keys, hostile) {
				break // the others will hang as well
			}
		}
	}
}

func brief(v string) string {
	if len(v) > 20 {
		return fmt.Sprintf("%d bytes of %q", len(v), v[:4])
	}
	return strconv.Quote(v)
}

// otherNumbers calls the script with too few and too many arguments and keys.
func otherNumbers(s *scriptcase.HostileServer, state string) {
	keys, args := s.Call.Keys, s.Call.Args
	for _, n := range []int{0, len(args) - 1, len(args) + 1, len(args) + 3, 6000, 20000} {
		s.Ends(state, fmt.Sprintf("%s, %d arguments", state, n), keys, resized(args, n))
	}
	for _, n := range []int{0, len(keys) - 1, len(keys) + 1, len(keys) + 8, 2000} {
		s.Ends(state, fmt.Sprintf("%s, %d keys", state, n), resized(keys, n), args)
	}
}

// resized is list with n elements: cut, or with the last one repeated.
func resized(list []string, n int) []string {
	if n <= len(list) {
		return list[:max(n, 0)]
	}
	last := "1"
	if len(list) > 0 {
		last = list[len(list)-1]
	}
	return slices.Concat(list, slices.Repeat([]string{last}, n-len(list)))
}

// longKeys calls the script with long names of keys, on many elements.
func longKeys(s *scriptcase.HostileServer) {
	long := hostileText("k", 256<<10)
	s.States["long"] = nil
	for _, d := range s.States["grown"] {
		d.Key += long
		s.States["long"] = append(s.States["long"], d)
	}
	var keys []string
	for _, key := range s.Call.Keys {
		keys = append(keys, key+long)
	}
	s.Ends("long", "keys of 256 KiB", keys, s.Call.Args)
}

// longAndMany calls the script with each of its single arguments long, and as many keys or
// groups of arguments as may be.
func longAndMany(s *scriptcase.HostileServer, b scriptcase.Bound) {
	fixed := len(s.Call.Args)
	if b.Tag == "args" {
		fixed = b.At
	}
	for at := range fixed {
		keys, args := s.Call.Keys, slices.Clone(s.Call.Args)
		if b.Tag == "keys" {
			keys = b.Groups(keys, b.Most(), true)
		} else {
			args = b.Groups(args, b.Most(), false)
		}
		args[at] = hostileText("x", hostileSize)
		s.Ends("filled", fmt.Sprintf("argument %d of 512 KiB and many %s", at+1, b.Tag), keys, args)
	}
}

// spoilKey calls the script as it is on a key with long values.
func spoilKey(s *scriptcase.HostileServer, state, key string) {
	for _, unit := range hostileTexts {
		text := hostileText(unit, 32<<10)
		for _, mode := range []string{"replaced", "continued", "preceded"} {
			s.Spoil(state, key, text, mode)
			what := fmt.Sprintf("%s, the values of %s %s by %s", state, key, mode, brief(text))
			if !s.Ends("spoilt", what, s.Call.Keys, s.Call.Args) {
				return
			}
		}
	}
}

// outOfBounds wants a value outside the bounds to be an error that names the argument.
func outOfBounds(t *testing.T, s *scriptcase.HostileServer, b scriptcase.Bound) {
	for _, v := range []string{b.Below(), strconv.Itoa(b.Most() + 1), "1e300", "inf", "nan", ""} {
		reply := with(s, b, v)
		assert.ErrorContains(t, reply.Err, b.Name+" must be ", "%s: %s is %q", s.Call.Name, b.Name, v)
		assert.False(t, reply.Changed, "%s: %s is %q", s.Call.Name, b.Name, v)
	}
}

// tooMany wants one more than the most to be an error that names the group, and the most
// to be none.
func tooMany(t *testing.T, s *scriptcase.HostileServer, b scriptcase.Bound) {
	text := b.Name + ": at most " + b.Max
	for _, n := range []int{b.Most(), b.Most() + 1} {
		s.Fill("filled")
		keys, args := s.Call.Keys, s.Call.Args
		switch b.Tag {
		case "keys":
			keys = b.Groups(keys, n, false)
		case "args":
			args = b.Groups(args, n, false)
		case "merge":
			keys, args = slices.Repeat(keys, n), slices.Repeat(args, n)
		}
		reply := s.Run(keys, args)
		require.NoError(t, reply.Late)
		if n > b.Most() {
			assert.ErrorContains(t, reply.Err, text, s.Call.Name)
			assert.False(t, reply.Changed, s.Call.Name)
		} else if reply.Err != nil {
			assert.NotContains(t, reply.Err.Error(), text, s.Call.Name)
		}
	}
}

// with calls the script with another value of one argument.
func with(s *scriptcase.HostileServer, b scriptcase.Bound, value string) scriptcase.HostileReply {
	s.Fill("filled")
	args := slices.Clone(s.Call.Args)
	args[b.At] = value
	return s.Run(s.Call.Keys, args)
}

// What no bound of a header says: lengths of texts that are used many times, numbers that
// have no next one, and lists in a text.
func TestArgumentsThatScriptsRefuse(t *testing.T) {
	t.Parallel()
	const names = "at most 1000 bytes"
	long := strings.Repeat("x", 1001)
	groups := scriptcase.RawCalls(t)
	for _, row := range []struct{ script, arg, value, want string }{
		{"rpc_call", "outbox", long, names},
		{"rpc_call", "caller", long, names},
		{"rpc_cast", "outbox", long, names},
		{"rpc_decide", "outbox", long, names},
		{"rpc_decide", "others", strings.Repeat("x", 4001), "at most 4000"},
		{"rpc_find", "outbox", long, names},
		{"rpc_find", "method", long, names},
		{"rpc_reply", "state", "p", "state is d, r or l"},
		{"rpc_join", "node", long, names},
		{"rpc_leave", "node", long, names},
		{"lock_acquire_all", "own", long + long, "at most 2000 bytes"},
		{"lock_note", "text", long + long, "at most 1024 bytes"},
		{"queue_control", "limit", "", "limit must be"},
		{"queue_control", "limit", "nan", "limit must be"},
		{"queue_mend", "to", "1e300", "to must be"},
		{"sidekiq/worker_take", "first", "9007199254740993", "first must be"},
		{"sidekiq/move", "plan", "1234567890123456789", "plan is not"},
		{"sidekiq/push", "plan", "1:1:=;1", "plan is not"},
		{"sidekiq/push", "plan", "1:1:=;1:1000000000000000:=;", "plan is not"},
		{"sidekiq/push_once", "plan", "1:1:=;1", "plan is not"},
	} {
		t.Run(row.script+" "+row.arg, func(t *testing.T) {
			t.Parallel()
			s := scriptcase.NewHostileServer(t)
			for _, call := range slices.Concat(slices.Collect(maps.Values(groups))...) {
				if call.Name != row.script {
					continue
				}
				s.Open(call)
				header := scriptcase.HeaderOf(call.Script)
				at := slices.IndexFunc(header, func(b scriptcase.Bound) bool {
					return b.Tag == "arg" && b.Name == row.arg
				})
				reply := with(s, header[at], row.value)
				require.ErrorContains(t, reply.Err, row.want)
				require.ErrorContains(t, reply.Err, row.arg)
				require.False(t, reply.Changed)
				return
			}
			t.Fatalf("no call of %s", row.script)
		})
	}
}
