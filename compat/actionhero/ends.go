package actionhero

import (
	"maps"
	"sync"
	"time"
)

// EndMargin is how much before its whole seconds a lock of a Cache ends. A lock whose end ActionHero up to 17 has
// changed by EXPIRE ends later, so that Unlock recognizes this.
const EndMargin = 10 * time.Millisecond

// ends remembers when the locks of a Cache end, in ms by the server's clock. Locks that nobody unlocks are forgotten
// after their end.
type ends struct {
	mu    sync.Mutex
	at    map[string]int64
	prune int // the number of locks at which expired ones are removed
}

// of returns the end of a lock; 0 when it is not known.
func (e *ends) of(key string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at[key]
}

// set stores the end of a lock that was taken for ttl.
func (e *ends) set(key string, at int64, ttl time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == nil {
		e.at = make(map[string]int64)
	}
	e.at[key] = at
	if len(e.at) > max(e.prune, 64) {
		now := at - ttl.Milliseconds()
		maps.DeleteFunc(e.at, func(_ string, end int64) bool { return end < now })
		e.prune = 2 * len(e.at)
	}
}

func (e *ends) forget(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.at, key)
}
