// Package actionhero works beside a cluster of ActionHero (Node.js) servers, on the
// same keys and the same channel: [Cache] takes the locks and reads and writes the
// items of api.cache, [Node] calls and serves methods as api.redis.doCluster does.
//
// What a lock is, and an item:
//
//	actionhero:lock:<key>    string  the lockName of its holder, with a TTL in whole seconds
//	actionhero:cache:<key>   string  {"value":...,"expireTimestamp":...,"createdAt":...,"readAt":...}
//	                                 {"value":...,"createdAt":...} from ActionHero 29 on
//
// ActionHero looks at the lock with one command and acts with the next. Here, each of
// Lock, Unlock, Load, Save and Destroy is one script: nothing comes between the look and
// the write. What stays racy on the side of ActionHero is in docs/actionhero.md.
//
// What a call is:
//
//	caller                     channel "actionhero"                every node
//	  │ do {id, method, args} ───────────────────────────────────▶ runs the method
//	  │ ◀──────────────────────────────────── doResponse {id, response} ──┘
//
// All nodes and the caller itself hear every message; the first response wins. Nothing is
// stored: a message that is not heard is lost, so a call is made at most once, and the
// answer can be a timeout although the method ran. PUBLISH is one command and atomic by
// itself: it needs no script. Where both sides are Go, luatomic.Bus loses nothing.
//
// ActionHero up to 17 ends its process on many messages that look harmless: a method that
// it does not have, one argument too many, a response that is not an array. A Node sends
// none of these; see [Era].
package actionhero

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/compat/actionhero/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// Errors of a Cache.
var (
	// ErrLocked says that another holds the lock of the key; nothing is changed. It
	// comes as a *LockedError.
	ErrLocked = errors.New("actionhero: object locked")
	// ErrNotFound says that there is no such item.
	ErrNotFound = errors.New("actionhero: object not found")
	// ErrExpired says that the item is there, and its expireTimestamp is over.
	ErrExpired = errors.New("actionhero: object expired")
	// ErrMalformed says that what is there is no item of ActionHero's.
	ErrMalformed = errors.New("actionhero: object is not JSON with a value")
)

// Errors of a Node.
var (
	// ErrNoResponders says that nobody but this node heard the call: no method has run.
	ErrNoResponders = errors.New("actionhero: no responder: no other node is subscribed to the channel")
	// ErrTimeout says that no response came in time. The method may have run.
	ErrTimeout = errors.New("actionhero: RPC Timeout")
	// ErrRemote says that the method answered with an error and nothing else. What kind
	// of error it was does not pass the wire.
	ErrRemote = errors.New("actionhero: unknown remote error")
	// ErrUndeclared says that in the callback era only methods in Options.Methods are
	// called, each with its number of arguments: all else ends the processes of the nodes.
	ErrUndeclared = errors.New("actionhero: method is not declared in Options.Methods, or with another number of arguments")
	// ErrBadName says that a name does not do what it says in ActionHero, or harm.
	ErrBadName = errors.New("actionhero: bad name")
	// ErrNotRunning says that the node's Run is not running or has not been connected yet.
	ErrNotRunning = errors.New("actionhero: not connected; is the node's Run running?")
)

// LockedError says who holds a lock. It matches ErrLocked.
type LockedError struct {
	Key, Holder string
	// Remaining is the rest of the lock's time, -1 where it never ends: its holder died
	// before it had set the end.
	Remaining time.Duration
}

func (e *LockedError) Error() string {
	if e.Remaining < 0 {
		return fmt.Sprintf("%v: %q by %s, without an end; delete the lock if that process is gone", ErrLocked, e.Key, e.Holder)
	}
	return fmt.Sprintf("%v: %q by %s, for %v more", ErrLocked, e.Key, e.Holder, e.Remaining)
}

// Is matches ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// An Era is how the versions of ActionHero in the cluster answer. Where they differ, it is
// that of the oldest.
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
