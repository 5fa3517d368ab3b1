package redisinaction

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// MaxBatch is the most tasks of one ExecuteAll, and the most that one PollQueue moves.
const MaxBatch = 1000

// Errors that callers may want to tell apart, beside those of package lua.
var (
	// ErrArgs says that the arguments of a task cannot be what a worker in Python
	// calls a function with.
	ErrArgs = errors.New("arguments are not a JSON array")
	// ErrForeignScore says that there are items in delayed: whose score is no time in
	// seconds. No poller will ever move them.
	ErrForeignScore = errors.New("scores that are not seconds")
	// ErrQueueRefused says that items are due whose queue takes none: its key is not a
	// list, or this user may not write it.
	ErrQueueRefused = errors.New("queue takes no items")
	// ErrMalformed says that an item is not one.
	ErrMalformed = errors.New("malformed item")
	// ErrHeld says that a lock is another's. It comes as a *HeldError.
	ErrHeld = errors.New("lock is held")
	// ErrNotHeld says that the identifier does not hold the lock.
	ErrNotHeld = errors.New("lock is not held")
)

// Options are the settings of a Client. The zero value is the layout of the book.
type Options struct {
	// Prefix comes before every key, as in "app:". The book has none. One with a hash
	// tag, as in "{app}:", makes all of it work on a Redis Cluster.
	Prefix string
}

// Client is the whole of one system. Its methods may be called from any goroutine.
type Client struct {
	redis  lua.Client
	prefix string
}

// New returns a client of the system that is kept on the server; nil options mean the
// defaults. Nothing is sent.
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

// checkName judges what becomes part of a key or of an item.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: %s is empty", lua.ErrBadName, what)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %s is not UTF-8, which Python would not read", lua.ErrBadName, what)
	case len(name) > maxName:
		return fmt.Errorf("%w: %s has %d bytes, at most %d", lua.ErrBadName, what, len(name), maxName)
	}
	return nil
}

const maxName = 512

// seconds is a score as a time; none for what is not a time.
func seconds(score float64) lua.Opt[time.Time] {
	if score != score || score < 0 || score > foreignScore {
		return lua.Opt[time.Time]{}
	}
	return lua.Some(time.UnixMicro(int64(score * 1e6)))
}

// foreignScore is the year 5138 in seconds; all of today's times in milliseconds or
// less are greater.
const foreignScore = 1e11

// Scripts are all scripts of this package, for lua.Preload.
func Scripts() []*lua.Script {
	return []*lua.Script{
		&script.ExecuteLaterScript, &script.DueScript, &script.MoveDueScript, &script.TakeScript, &script.QuarantineScript,
		&script.AcquireLockScript, &script.ExtendLockScript, &script.ReleaseLockScript,
	}
}
