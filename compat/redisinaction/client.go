package redisinaction

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// MaxBatch is the limit of tasks in one ExecuteAll, and of items that one PollQueue moves.
const MaxBatch = 1000

// Errors beside those of package lua.
var (
	// ErrArgs reports that a worker in Python cannot call a function with the arguments of a task.
	ErrArgs = errors.New("arguments are not a JSON array")
	// ErrForeignScore reports that items in delayed: have a score that is not a time in seconds. No poller ever moves
	// them.
	ErrForeignScore = errors.New("scores that are not seconds")
	// ErrQueueRefused reports that due items stay in delayed: because the key of their queue is not a list, or this
	// user may not write it.
	ErrQueueRefused = errors.New("queue takes no items")
	// ErrMalformed reports that an item does not parse.
	ErrMalformed = errors.New("malformed item")
	// ErrHeld reports that another process holds the lock. It is returned as a *HeldError.
	ErrHeld = errors.New("lock is held")
	// ErrNotHeld reports that the identifier does not hold the lock.
	ErrNotHeld = errors.New("lock is not held")
)

// Options are the settings of a Client. The zero value is the layout of the book.
type Options struct {
	// Prefix precedes every key, as in "app:". The book has none. With a hash tag, as in "{app}:", everything works
	// on a Redis Cluster.
	Prefix string
}

// Client is the client of one system. Its methods may be called from any goroutine.
type Client struct {
	redis  lua.Client
	prefix string
}

// New returns a client of the system on the server; nil options mean the defaults. Nothing is sent.
func New(client lua.Client, opts *Options) *Client {
	c := &Client{redis: client}
	if opts != nil {
		c.prefix = opts.Prefix
	}
	return c
}

func (c *Client) delayed() string              { return c.prefix + "delayed:" }
func (c *Client) malformed() string            { return c.prefix + "malformed:" }
func (c *Client) queue(name string) string     { return c.prefix + "queue:" + name }
func (c *Client) lock(name string) string      { return c.prefix + "lock:" + name }
func (c *Client) working(worker string) string { return c.prefix + "working:" + worker }
func (c *Client) receipt(id string) string     { return c.prefix + "sent:" + id }

// checkName checks a name that becomes part of a key or of an item.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: %s is empty", lua.ErrBadName, what)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %s is not UTF-8, which Python cannot read", lua.ErrBadName, what)
	case len(name) > maxName:
		return fmt.Errorf("%w: %s has %d bytes, at most %d", lua.ErrBadName, what, len(name), maxName)
	}
	return nil
}

const maxName = 512

// seconds converts a score to a time; a score that is not a time is absent.
func seconds(score float64) lua.Opt[time.Time] {
	if score != score || score < 0 || score > foreignScore {
		return lua.Opt[time.Time]{}
	}
	return lua.Some(time.UnixMicro(int64(score * 1e6)))
}

// foreignScore is the year 5138 in seconds; present times in milliseconds or a smaller unit are greater.
const foreignScore = 1e11

// Scripts returns all scripts of this package, for lua.Preload.
func Scripts() []*lua.Script {
	return []*lua.Script{
		&script.ExecuteLaterScript, &script.DueScript, &script.MoveDueScript, &script.TakeScript,
		&script.QuarantineScript,
		&script.AcquireLockScript, &script.ExtendLockScript, &script.ReleaseLockScript,
	}
}
