package lua

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Merge describes a script for many: one call of the script takes the keys and arguments of several calls, row after
// row, and returns their replies in the same way.
type Merge struct {
	// Max is how many rows one call takes.
	Max int
	// Width is how many values the reply of a row has. It is 0 for a script without a reply.
	Width int
	// Tuple says whether the reply of a row is a tuple and not a single value.
	Tuple bool
}

// maxRowBytes bounds the keys and arguments of the rows of one call.
const maxRowBytes = 128 << 10

// unit is one command of a round trip: a call, or the rows of several calls of a script for many.
type unit struct {
	calls []*Call
	cmd   *command // of its own where there are several
	bytes int
	tag   string // of its keys, where there may be several servers
}

// units groups calls. The rows of one command come from calls of one script, in their order. If the order between
// scripts counts, only neighbours share a command. Keys with one hash tag are in one slot of a cluster and on one shard
// of a ring.
func units(calls []*Call, byTag, ordered bool) []*unit {
	all := make([]*unit, 0, len(calls))
	for _, c := range calls {
		tag := ""
		if byTag {
			tag = hashTag(c.firstKey())
		}
		if u := room(all, c, tag, ordered); u != nil {
			u.calls, u.bytes = append(u.calls, c), u.bytes+c.size
			continue
		}
		all = append(all, &unit{calls: []*Call{c}, bytes: c.size, tag: tag})
	}
	return all
}

// room returns the unit that takes the call as one more row.
func room(all []*unit, c *Call, tag string, ordered bool) *unit {
	if !c.mergeable() {
		return nil
	}
	for i := len(all) - 1; i >= 0; i-- {
		u := all[i]
		first := u.calls[0]
		if first.script == c.script && first.mergeable() && u.tag == tag && len(u.calls) < c.script.Merge.Max &&
			u.bytes+c.size <= maxRowBytes {
			return u
		}
		if ordered {
			return nil
		}
	}
	return nil
}

// mergeable reports whether the call may be a row beside others. A guarded call is always a command of its own.
func (c *Call) mergeable() bool { return c.script.Merge != nil && !c.guarded }

// queue appends the command of the unit to a pipeline. A row whose caller has left is dropped.
func (u *unit) queue(ctx context.Context, pipe redis.Pipeliner) {
	if len(u.calls) == 1 {
		_ = pipe.Process(ctx, u.calls[0].prepare(ctx, false))
		return
	}
	kept := u.calls[:0]
	size := 3
	for _, c := range u.calls {
		if c.phase.CompareAndSwap(idle, written) {
			kept = append(kept, c)
			size += len(c.argv) - 3
		}
	}
	if u.calls = kept; len(kept) == 0 {
		return
	}
	argv, keys := make([]any, 3, size), 0
	for _, c := range u.calls {
		argv = append(argv, c.argv[3:3+c.keys]...)
		keys += c.keys
	}
	for _, c := range u.calls {
		argv = append(argv, c.argv[3+c.keys:]...)
	}
	s := u.calls[0].script
	u.cmd = new(command)
	argv[0], argv[1], argv[2] = s.verb(false), &u.cmd.program, count(keys)
	u.cmd.Cmd, u.cmd.program = *redis.NewCmd(ctx, argv...), program{script: s}
	_ = pipe.Process(ctx, u.cmd)
}

// deliver gives each row its part of the reply. If the script raised an error, which is the error of one row, deliver
// returns the calls. Each of them is then sent by itself, unless it may have run and must not run again.
func (u *unit) deliver() (again []*Call) {
	if u.cmd == nil {
		return nil
	}
	value, err := u.cmd.Val(), u.cmd.Err()
	if u.cmd.program.answered {
		err = nil // that of another command of the pipeline
	}
	if isReply(err) && err != redis.Nil && !u.cmd.program.waiting {
		if e := classify(u.cmd, err); !e.transient && u.mayRunAgain(e) {
			return u.calls
		}
	}
	rows, _ := value.([]any)
	merge := u.calls[0].script.Merge
	width := merge.Width
	whole := err == nil && len(rows) == width*len(u.calls)
	for i, c := range u.calls {
		c.cmd = command{Cmd: *redis.NewCmd(context.Background()), program: u.cmd.program}
		switch {
		case err != nil:
			c.cmd.Cmd.SetErr(err)
		case whole && width == 1 && !merge.Tuple: // see row; a slice of one would be an allocation
			c.cmd.SetVal(rows[i])
		case whole && width > 0:
			c.cmd.SetVal(rows[i*width : (i+1)*width : (i+1)*width])
		case whole:
			c.cmd.SetVal(value)
		default:
			c.cmd.SetVal(misfit{got: value, rows: len(u.calls), width: width})
		}
	}
	return nil
}

// mayRunAgain reports whether the rows of a call with that error may be sent again. A script that is not to be repeated
// refuses before its first write (rule M001 of luagen).
func (u *unit) mayRunAgain(e *Error) bool {
	return u.calls[0].script.Retry == RetrySafe || e.Outcome == ErrNotExecuted || e.Outcome == ErrRefused
}

// misfit is a reply that does not have the values of all rows. No decoder takes it.
type misfit struct {
	got         any
	rows, width int
}

func (m misfit) String() string {
	return fmt.Sprintf("%s for %d rows of %d", kind(m.got), m.rows, m.width)
}

// row returns the reply to one row in the form of a reply to a single call.
func (m *Merge) row(value any) any {
	if row, ok := value.([]any); ok && !m.Tuple && len(row) == 1 && m.Width == 1 {
		return row[0]
	}
	return value
}
