package lab

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Together is a hook that holds back each pipeline which begins with a command, until so many wait at once. It notes by
// when each has to be answered.
type Together struct {
	wait    int
	command string

	mu   sync.Mutex
	ends map[time.Time]bool
	here int
	all  chan struct{}
}

// NewTogether is for so many pipelines of a command.
func NewTogether(wait int, command string) *Together {
	return &Together{wait: wait, command: command, ends: make(map[time.Time]bool), all: make(chan struct{})}
}

func (h *Together) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *Together) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *Together) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == h.command {
			h.arrive(ctx)
		}
		return next(ctx, cmds)
	}
}

func (h *Together) arrive(ctx context.Context) {
	h.mu.Lock()
	end, _ := ctx.Deadline()
	h.ends[end] = true
	if h.here++; h.here == h.wait {
		close(h.all)
	}
	h.mu.Unlock()
	select {
	case <-h.all:
	case <-ctx.Done():
	}
}

// Deadlines counts the times by which answers had to be there.
func (h *Together) Deadlines() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ends)
}
