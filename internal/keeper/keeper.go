package keeper

import (
	"reflect"
	"time"

	"github.com/luatomic/luatomic/lua"
)

// Keeper renews the leases of one domain of a process. All keepers of a client share one goroutine for each server.
type Keeper struct {
	client lua.Client
	id     any // of the client, for the goroutines that keepers share
	causes Causes
	clocks func() (mono, wall time.Time)
	closed bool // guarded by the lock of renewals
}

// NewKeeper returns a keeper whose leases end with the causes. It sends nothing and starts no goroutine.
func NewKeeper(client lua.Client, causes Causes) *Keeper {
	k := &Keeper{client: client, id: client, causes: causes, clocks: readClocks}
	if t := reflect.TypeOf(client); t != nil && !t.Comparable() {
		k.id = k
	}
	return k
}

func readClocks() (mono, wall time.Time) {
	now := time.Now()
	return now, now.Round(0)
}

// RenewAll renews every lease now: a notification may have been missed.
func (k *Keeper) RenewAll() {
	now := time.Now()
	renewals.mu.Lock()
	defer renewals.mu.Unlock()
	for _, c := range renewals.of(k) {
		c.server.schedule(c, now)
	}
}

// Renew renews the lease now, if it is kept. It is called after a notification that the server has changed the lease.
func (l *Entry) Renew() {
	l.mu.Lock()
	kept := l.kept
	l.mu.Unlock()
	renewals.mu.Lock()
	defer renewals.mu.Unlock()
	if kept != nil && kept.server != nil {
		kept.server.schedule(kept, time.Now())
	}
}

// renewSooner schedules the renewal of a kept lease that an extension made shorter, so that it is renewed before it
// ends. It does nothing if MaxHold ends the lease.
func (l *Entry) renewSooner() {
	l.mu.Lock()
	kept, at, last := l.kept, l.due(), l.isLast()
	l.mu.Unlock()
	if kept == nil || last {
		return
	}
	renewals.mu.Lock()
	defer renewals.mu.Unlock()
	if kept.server != nil && at.Before(kept.next) {
		kept.server.schedule(kept, at)
	}
}

// due returns the time of the next renewal: after a third of the last extension. The caller holds l.mu.
func (l *Entry) due() time.Time { return l.asOf.Add(l.deadline.Sub(l.asOf) / 3) }

// EndWhere ends the kept leases whose holder matches, with the cause why.
func (k *Keeper) EndWhere(why error, match func(Holder) bool) {
	renewals.mu.Lock()
	kept := renewals.of(k)
	renewals.mu.Unlock()
	for _, c := range kept {
		if match(c.lease.holder) {
			c.lease.End(why)
		}
	}
}

// Close stops all renewals. It ends no lease: each ends at its deadline. A round trip that has begun goes on.
func (k *Keeper) Close() {
	renewals.mu.Lock()
	defer renewals.mu.Unlock()
	k.closed = true
	for _, c := range renewals.of(k) {
		c.server.remove(c)
	}
}
