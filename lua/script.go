// Package lua is the runtime under every function that luagen generates: it sends a script by its digest, loads it if
// the server does not have it, retries it only if a retry is safe, and decodes the reply strictly.
//
// # For programs, and for generated code
//
// Programs use [Client], [Preload], [Batch] and [Future], [Guard], [Direct], [Opt] and [Some], [Codec], and the errors:
// [Error], [Code], [SizeError], [RangeError], [PanicError] and what they match. The rest is for generated code alone:
// [Call] and [NewCall], [Reply], [Run], [Queue], [Merge], and the fields of [Script], [Text], [Lines] and [Key]. luagen
// of the same version writes it, so it may change between versions without notice.
//
// # Sending a call
//
// A generated function builds a [Call] (keys first, then arguments), and [Run] sends it as EVALSHA. By default go-redis
// sends a command again when its reply was lost, so it may run up to four times. A Call forbids that (NoRetry) and
// decides by the outcome of the failure:
//
//   - not executed ([ErrNotExecuted]): the connection was never made, or the
//     server refused before the first line (LOADING, TRYAGAIN, READONLY,
//     NOSCRIPT, ...). Temporary failures are retried for every script, with
//     backoff, until ctx ends; a ctx without a deadline counts as ten seconds.
//     The refusal of a client's Limiter is temporary too: where callers must
//     not wait for it, give ctx a short deadline.
//     An error at a line before the script's first write, such as a wrong
//     type, is of this kind, and is not retried.
//   - unknown ([ErrOutcomeUnknown]): sent, and no reply. Retried only for a
//     script declared "@retry safe".
//   - executed in part ([ErrExecutedInPart]): a Lua error, a wrong type, a
//     command that the user may not call, at a line that may come after a
//     write. Never retried.
//   - refused ([ErrRefused]): the script itself answered with an error it
//     declares; match it with errors.Is against the generated variable.
//
// # Round trips that calls share
//
// A single call is sent immediately. If there are other calls, it waits until all runnable goroutines have had their
// turn. Then these calls are sent together: in one pipeline, and as the rows of one command if the script is one for
// many ("---@merge" in its header). At most four round trips to a server are in progress, three while more callers
// share them. Later calls wait for one of them to return. If all of them take longer than 20 ms, the next call begins
// one of a few more, and takes along what waits. No timer delays a call, and none ends its wait. Each call has its own
// outcome, as if it had been sent alone. Calls share round trips, per node, on a Client (also with Sentinel), an
// AutoPipeliner on one, a ClusterClient and a Ring. Calls of more than 64 KiB, and those on other kinds of clients, are
// sent alone. [Direct] switches the sharing off for a client.
//
// A call that shares round trips returns when its context ends, whatever the server does: with [ErrNotExecuted] if it
// was not written yet, otherwise with [ErrOutcomeUnknown]. A call that is sent alone returns when go-redis does, which
// waits for its ReadTimeout (5 s) unless the client has ContextTimeoutEnabled.
//
// # Hooks
//
// A hook of the client sees each attempt of a call as an EVALSHA with its arguments. A hook may replace arguments of
// the command: each attempt has its own. On a ClusterClient or a Ring, an attempt that goes out together with SCRIPT
// LOAD or WAIT is sent by the client of its node, past the hooks of the ClusterClient or Ring. A hook that must see
// every attempt is added to the clients of the nodes, by OnNewNode.
//
// # What is checked before any I/O
//
// Names, bounds, the number of items and bytes in one call, and that all keys hash to one Redis Cluster slot. The last
// is checked on a single server too, so that a mistake that only a cluster would refuse shows in development.
package lua

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/send"
)

// Client is any go-redis client: Client, ClusterClient, Ring, the Sentinel failover client, or an AutoPipeliner on a
// Client or ClusterClient. A struct of the caller that embeds a *Client, *ClusterClient or *Ring is one too, but its
// calls share no round trips. If it embeds the interface, its servers are not known, and each subscribed name costs a
// connection. A redis.Pipeliner is not a Client: its EVALSHA cannot recover from NOSCRIPT. Use [Batch].
type Client = redis.UniversalClient

// Retry says whether a script may run again when the outcome of the first run is unknown.
type Retry uint8

const (
	// RetryNever means ErrOutcomeUnknown instead of a second run.
	RetryNever Retry = iota
	// RetrySafe allows a second run, because it has no further effect. The first copy may still be on its way and run
	// after other calls. So a script that overwrites a changing value is not safe: pass a version, a token or a fence.
	RetrySafe
)

// Key describes one declared key of a script.
type Key struct {
	// Name is the key's name in the header, not the key itself.
	Name string
	// Type is the Redis type, as TYPE prints it. It is "" when none is declared.
	Type string
	// Variadic marks the last entries, one or more, that stand for any number of keys. These entries repeat in their
	// order.
	Variadic bool
}

// Script is one Lua file. Generated code declares it. The value never changes.
type Script struct {
	// Name is the file's name without its suffix: lock_release.
	Name string
	// SHA is the SHA-1 of the file, 40 hex digits. It is a constant of the generated code, so nothing is hashed when a
	// program starts.
	SHA string
	// Source points to the embedded text.
	Source *string
	// Lines tells where the lines of the text come from. It is nil where the source is the text itself.
	Lines []Lines
	// Retry is the declared retry class.
	Retry Retry
	// ReadOnly scripts are sent as EVALSHA_RO and may run on a replica, on a client of that replica. A ClusterClient
	// sends them to the master, even if it may read from replicas, because those can lag.
	ReadOnly bool
	// WritesAfter is the last line of the file at which an error means that the script has changed nothing, because
	// what can write or publish comes later. Zero: not known.
	WritesAfter int
	// AnySlot allows keys in different slots, for layouts without a hash tag. A Redis Cluster refuses such calls.
	AnySlot bool
	// MaxBytes limits keys and arguments of one call. Zero means 1 MiB.
	MaxBytes int
	// Keys are the declared keys, in order.
	Keys []Key
	// Codes are the first words of the errors that the script returns: its @error.
	Codes []string
	// Merge describes a script for many; nil if each call of the script is a command.
	Merge *Merge
	// Guarded is the script behind its guard, which Guard runs; zero if the header has no @guard. It has one more key
	// and one more argument, in the last place.
	Guarded Text
	// GuardLines tells where the lines of the guard come from.
	GuardLines []Lines
}

// Text is the text that a server runs: the file of a script, or two files joined.
type Text struct {
	// SHA is the SHA-1 of the whole, 40 hex digits.
	SHA string
	// Guard points to the text of the guard, which comes first and ends with a line feed. It is nil without a guard.
	Guard *string
	// Source points to the text of the script.
	Source *string
}

// Lines are lines of a text, from At to where the next ones begin, that are lines of one file, from Line on: of the
// script's source, of a fragment or of the guard.
type Lines struct {
	At   int
	File string
	Line int
}

// place returns the file and line from which a line of a text comes; no file where that is not known.
func place(all []Lines, line int) (file string, at int) {
	for _, l := range all {
		if line < l.At {
			break
		}
		file, at = l.File, l.Line+line-l.At
	}
	if file == "" {
		return "", line
	}
	return file, at
}

// String returns the whole text, as SCRIPT LOAD sends it. It is empty for the zero Text.
func (t Text) String() string {
	switch {
	case t.Source == nil:
		return ""
	case t.Guard == nil:
		return *t.Source
	}
	return *t.Guard + *t.Source
}

// scriptLine maps a line of the whole text to a line of the script's own text, and a line of the guard to 0.
func (t Text) scriptLine(line int) int {
	if t.Guard != nil {
		line -= strings.Count(*t.Guard, "\n")
	}
	return max(line, 0)
}

// place maps a line of the whole text to a line of a source.
func (s *Script) place(t Text, line int) (file string, at int) {
	own := t.scriptLine(line)
	switch {
	case line > 0 && own > 0:
		return place(s.Lines, own)
	case line > 0:
		if file, at = place(s.GuardLines, line); file != "" {
			return file, at
		}
	}
	return "", 0
}

func (s *Script) file(guarded bool) Text {
	if guarded {
		return s.Guarded.hooked(s)
	}
	return Text{SHA: s.SHA, Source: s.Source}.hooked(s)
}

// title returns the script's name for messages and traces.
func title(name string, guarded bool) string {
	if guarded {
		return "guarded " + name
	}
	return name
}

// defaultMaxBytes keeps one script call under about 5 ms of server time.
const defaultMaxBytes = 1 << 20

func (s *Script) maxBytes() int {
	if s.MaxBytes > 0 {
		return s.MaxBytes
	}
	return defaultMaxBytes
}

// verb returns the command that runs the script by digest or, when eval is true, by text.
func (s *Script) verb(eval bool) any {
	readOnly := s.ReadOnly && send.RewriteScript == nil // a rewritten script publishes what it did
	switch {
	case eval && readOnly:
		return "eval_ro"
	case eval:
		return "eval"
	case readOnly:
		return "evalsha_ro"
	}
	return "evalsha"
}

// key returns the declaration of the i-th key of a call.
func (s *Script) key(i int) Key {
	if i < len(s.Keys) {
		return s.Keys[i]
	}
	fixed := len(s.Keys)
	for fixed > 0 && s.Keys[fixed-1].Variadic {
		fixed--
	}
	if group := s.Keys[fixed:]; len(group) > 0 {
		return group[(i-fixed)%len(group)]
	}
	return Key{}
}
