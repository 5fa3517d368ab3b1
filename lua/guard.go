package lua

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/send"
)

// Lease is what [Guard] needs of a lease. The leases of locks and semaphores implement it, and a user's own type can
// too. Only the guard, the file that the script's @guard names, reads the record under the key.
type Lease interface {
	// GuardKey returns the key that records the lease.
	GuardKey() string
	// GuardToken returns the token that identifies the lease there.
	GuardToken() string
}

// Guard returns a client on which every generated function runs its script behind a guard: the guard checks whether the
// lease is held now, by the server's clock, and the script works in the same step. If the lease is not held, the call
// fails with [ErrFenced]. So a holder that was paused beyond the end of its lease changes nothing, and the data needs
// no stored fence.
//
// The guard is a Lua file that ---@guard in the script's header names; its text and the script's are sent as one. The
// call of a script without a guard fails with [ErrNoGuard], and nothing is sent. The key of the lease must be in the
// slot of the call's keys; otherwise the error is [ErrCrossSlot]. Key and token are read for each call; in a batch,
// when the call is queued.
//
// Only generated functions are guarded. A plain command, such as Set, goes to client unchanged. A client has at most
// one guard. Guard is the outermost client: inside a struct of the caller its scripts fail, and it makes no
// AutoPipeliner.
func Guard(client Client, lease Lease) Client { return &guarded{Client: client, lease: lease} }

// guarded is a client that is bound to a lease. It sends nothing itself: Run, NewBatch and Preload use the client that
// it wraps.
type guarded struct {
	Client
	lease Lease
}

// Unguarded returns the wrapped client, for commands that are no scripts.
func (g *guarded) Unguarded() Client { return g.Client }

// errHidden is the error of a script that reaches the client of Guard through another client, which has its methods and
// not its guard. An AutoPipeliner of it would be such a client.
var (
	errHidden = errors.New("another client hides the guard: pass that client to Guard instead")
	errPiped  = errors.New("an AutoPipeliner hides the guard: pass it to Guard instead")
)

// Process sends a plain command.
func (g *guarded) Process(ctx context.Context, cmd redis.Cmder) error {
	return pass(ctx, cmd, g.Client.Process)
}

// Pipeline returns a pipeline for plain commands.
func (g *guarded) Pipeline() redis.Pipeliner { return pipeline{g.Client.Pipeline()} }

// pipeline is one of a client of Guard.
type pipeline struct{ redis.Pipeliner }

func (p pipeline) Process(ctx context.Context, cmd redis.Cmder) error {
	return pass(ctx, cmd, p.Pipeliner.Process)
}

func pass(ctx context.Context, cmd redis.Cmder, to func(context.Context, redis.Cmder) error) error {
	if c, ok := cmd.(*command); ok {
		c.SetErr(errHidden)
		return errHidden
	}
	return to(ctx, cmd)
}

func (g *guarded) AutoPipeline() (*redis.AutoPipeliner, error)      { return nil, errPiped }
func (g *guarded) AsyncAutoPipeline() (*redis.AutoPipeliner, error) { return nil, errPiped }
func (g *guarded) AutoPipelineWithOptions(*redis.AutoPipelineOptions) (*redis.AutoPipeliner, error) {
	return nil, errPiped
}
func (g *guarded) AsyncAutoPipelineWithOptions(*redis.AutoPipelineOptions) (*redis.AutoPipeliner, error) {
	return nil, errPiped
}

// bind puts the call behind the client's guard or command, if the client has one, and returns the client that sends.
func (c *Call) bind(client Client) Client {
	switch of := client.(type) {
	case *guarded:
		c.guard(of)
		client = of.Client
	case *send.Ahead:
		c.ahead, client = of, of.UniversalClient
	}
	c.requireClient(client)
	return observe(client)
}

var (
	errTwoGuards = errors.New("the client is bound to two leases: pass the unguarded client to Guard")
	errNilLease  = errors.New("the client is bound to no lease: pass one to Guard, not nil")
)

// guard puts the script behind its guard: it appends the lease's key to the keys and its token to the arguments. The
// guard removes both.
func (c *Call) guard(g *guarded) {
	_, twice := g.Client.(*guarded)
	switch {
	case c.err != nil:
		return // keys or arguments are missing
	case twice:
		c.fail(errTwoGuards)
		return
	case g.lease == nil:
		c.fail(errNilLease)
		return
	case c.script.Guarded.Source == nil:
		c.fail(fmt.Errorf("%w: add ---@guard guard.lua to the header of %s.lua and run go generate", ErrNoGuard,
			c.script.Name))
		return
	}
	key, token := g.lease.GuardKey(), g.lease.GuardToken()
	switch {
	case key == "":
		c.fail(fmt.Errorf("%w: the lease's key is empty", ErrBadName))
	case token == "":
		c.fail(fmt.Errorf("%w: the lease's token is empty", ErrBadName))
	}
	c.argv = append(slices.Insert(c.argv, 3+c.keys, any(key)), token)
	c.keys++
	c.EndKeys()
	c.guarded = true
}

// checkSlot refuses keys in different slots, with its own error if only the lease's key differs.
func (c *Call) checkSlot() error {
	keys := c.argv[3 : 3+c.keys]
	if c.script.AnySlot {
		return nil
	}
	if !c.guarded {
		return checkSlot(keys)
	}
	data, lease := keys[:len(keys)-1], keys[len(keys)-1]
	if err := checkSlot(data); err != nil {
		return err
	}
	if checkSlot(keys) != nil {
		return fmt.Errorf("%w: %q, which records the lease, and %q; give the lease a key with the data's {tag}",
			ErrCrossSlot,
			shownKey(keyText(lease)), shownKey(keyText(data[0])))
	}
	return nil
}
