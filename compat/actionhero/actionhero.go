// Package actionhero works beside a cluster of ActionHero (Node.js) servers, on the
// same keys and the same channel: [Cache] takes the locks and reads and writes the
// items of api.cache, [Node] calls and serves methods as api.redis.doCluster does.
//
// A lock and an item are stored as:
//
//	actionhero:lock:<key>    string  the lockName of its holder, with a TTL in whole seconds
//	actionhero:cache:<key>   string  {"value":...,"expireTimestamp":...,"createdAt":...,"readAt":...}
//	                                 {"value":...,"createdAt":...} from ActionHero 29 on
//
// ActionHero checks the lock with one command and acts with the next. Here, each of Lock, Unlock, Load, Save and
// Destroy is one script: no other command runs between the check and the write. docs/actionhero.md lists the races that
// remain on the side of ActionHero.
//
// A call is:
//
//	caller                     channel "actionhero"                every node
//	  │ do {id, method, args} ───────────────────────────────────▶ runs the method
//	  │ ◀──────────────────────────────────── doResponse {id, response} ──┘
//
// All nodes and the caller itself receive every message; the first response wins. Nothing is stored: a message without
// a subscriber is lost. So a call is made at most once, and can time out although the method ran. PUBLISH is one atomic
// command and needs no script. Where both sides are Go, luatomic.Bus loses nothing.
//
// ActionHero up to 17 ends its process on many messages that seem harmless: a method that it does not have, one
// argument too many, a response that is not an array. A [Node] sends none of these; see [Era]. ActionHero from 18 on
// ends its process when a method throws or its name is not a function; see [Options].
package actionhero

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/compat/actionhero/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// ErrEncoding reports that a text in a value, an argument or a message is not UTF-8. It is found before anything is
// sent. Send bytes as base64.
var ErrEncoding = errors.New("actionhero: text is not UTF-8")

// Errors of a Cache.
var (
	// ErrLocked reports that another owner holds the lock of the key; nothing is changed. It comes as a *LockedError.
	ErrLocked = errors.New("actionhero: object locked")
	// ErrNotFound reports that the item does not exist.
	ErrNotFound = errors.New("actionhero: object not found")
	// ErrExpired reports that the item exists and its expireTimestamp has passed.
	ErrExpired = errors.New("actionhero: object expired")
	// ErrMalformed reports that the key's value is not an item of ActionHero's.
	ErrMalformed = errors.New("actionhero: object is not JSON with a value")
)

// Errors of a Node.
var (
	// ErrNoResponders reports that no other node received the call: no method has run.
	ErrNoResponders = errors.New("actionhero: no responder: no other node is subscribed to the channel")
	// ErrTimeout reports that no response arrived in time. The method may have run.
	ErrTimeout = errors.New("actionhero: RPC Timeout")
	// ErrRemote reports that the method answered only with an error. The message does not carry the error itself.
	ErrRemote = errors.New("actionhero: unknown remote error")
	// ErrUnanswered is what a handler returns that gives a call up without an outcome, as when its node ends: no
	// response is sent, and the caller times out.
	ErrUnanswered = errors.New("actionhero: the call is left without an answer")
	// ErrUndeclared reports that the method is not in Options.Methods, or, in the callback era, has another number of
	// arguments. Nothing is sent, because the call could end the processes of the nodes.
	ErrUndeclared = errors.New(
		"actionhero: method is not declared in Options.Methods, or with another number of arguments")
	// ErrBadName reports a name that ActionHero misreads or fails on.
	ErrBadName = errors.New("actionhero: bad name")
	// ErrNotRunning reports that the node's Run is not running or not yet connected.
	ErrNotRunning = errors.New("actionhero: not connected; is the node's Run running?")
)

// LockedError reports the holder of a lock. It matches ErrLocked.
type LockedError struct {
	Key, Holder string
	// Remaining is the remaining time of the lock, or -1 if it never expires: its holder died before it set the TTL.
	Remaining time.Duration
}

func (e *LockedError) Error() string {
	if e.Remaining < 0 {
		return fmt.Sprintf("%v: %q by %s, without an end; delete the lock if that process is dead",
			ErrLocked, e.Key, e.Holder)
	}
	return fmt.Sprintf("%v: %q by %s, for %v more", ErrLocked, e.Key, e.Holder, e.Remaining)
}

// Is matches ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// An Era is a group of ActionHero versions that answer in the same form. In a mixed cluster, use the era of the oldest
// node.
type Era uint8

const (
	// Promise is ActionHero 19.0.4 to 29: messageId, and the value of the promise.
	Promise Era = iota
	// Promise18 is 18.0.0 to 19.0.2: requestId, and the value of the promise.
	Promise18
	// Callback is 9 to 17: requestId, and the sorted list of the callback's arguments.
	Callback
)

func (e Era) String() string {
	switch e {
	case Promise:
		return "promise"
	case Promise18:
		return "promise18"
	case Callback:
		return "callback"
	}
	return fmt.Sprintf("Era(%d)", uint8(e))
}

func freshName() string { return "luatomic-" + uuid.NewString() }

// Scripts are all scripts of this package, for lua.Preload.
func Scripts() []*lua.Script {
	return []*lua.Script{
		&script.CacheCheckScript, &script.CacheDestroyScript, &script.CacheLoadScript, &script.CacheLockScript,
		&script.CacheSaveScript, &script.CacheUnlockScript,
	}
}
