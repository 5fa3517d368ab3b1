package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/internal/testkit/drill/history"
	"github.com/luatomic/luatomic/luatomictest"
)

// mostOffset bounds how far the server's clock is from the true time.
const mostOffset = 2 * time.Second

// kinds are the faults of a drill.
var kinds = map[string]func(*field){
	// The network.
	"cut":    func(f *field) { f.proxy().CutAll() },
	"lose":   func(f *field) { f.proxy().Drop(1+f.rnd.IntN(4), f.sometimes()) },
	"refuse": func(f *field) { f.proxy().DropRequest(1+f.rnd.IntN(4), f.sometimes()) },
	"hole":   (*field).hole,
	"unlink": func(f *field) { f.admin.Do(context.Background(), "CLIENT", "KILL", "TYPE", "pubsub") },
	"kill all": func(f *field) {
		f.admin.Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	},
	// The server.
	"flush":   func(f *field) { f.admin.ScriptFlush(context.Background()) },
	"hang":    (*field).hang,
	"restart": func(f *field) { f.server.Restart() },
	"oom":     (*field).oom,
	"step":    func(f *field) { f.step(time.Duration(f.rnd.Int64N(int64(2*lease))) - lease) },
	// The processes.
	"kill": func(f *field) {
		m := f.member()
		m.Kill()
		f.start(m)
	},
	"stop": (*field).stop,
	"term": func(f *field) {
		m := f.member()
		f.end(m)
		f.start(m)
	},
}

// fault does the next thing to the field. Every kind has its turn before one comes again.
func (f *field) fault() {
	if len(f.deck) == 0 {
		for kind := range kinds {
			f.deck = append(f.deck, kind)
		}
		slices.Sort(f.deck)
		f.rnd.Shuffle(len(f.deck), func(i, j int) { f.deck[i], f.deck[j] = f.deck[j], f.deck[i] })
	}
	kind := f.deck[0]
	f.deck = f.deck[1:]
	f.faults[kind]++
	f.log.Add(history.Record{Kind: history.Fault, Text: kind})
	kinds[kind](f)
}

func (f *field) proxy() *luatomictest.LossyProxy { return f.proxies[f.rnd.IntN(len(f.proxies))] }

func (f *field) member() *member { return f.members[f.rnd.IntN(len(f.members))] }

// wait lasts for a part of the time.
func (f *field) wait(most time.Duration) {
	sleep(f.t.Context(), time.Duration(f.rnd.Int64N(int64(most))))
}

// sometimes matches one script in four.
func (f *field) sometimes() func([]string) bool {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(f.rnd.Uint64(), 0))
	script := luatomictest.Command("EVALSHA")
	return func(args []string) bool {
		mu.Lock()
		defer mu.Unlock()
		return script(args) && rnd.IntN(4) == 0
	}
}

// hole keeps what passes on its way for a while.
func (f *field) hole() {
	p := f.proxy()
	p.Blackhole(true)
	f.wait(lease * 3 / 2)
	p.Blackhole(false)
}

func (f *field) hang() {
	f.server.Pause()
	f.wait(lease / 2)
	f.server.Resume()
}

// stop stops a process, often for longer than its leases.
func (f *field) stop() {
	m := f.member()
	require.NoError(f.t, launch.Stop(m.Cmd.Process.Pid))
	f.wait(2 * lease)
	require.NoError(f.t, launch.Continue(m.Cmd.Process.Pid))
}

// oom leaves the server no memory for a while.
func (f *field) oom() {
	ctx := f.t.Context()
	f.eventually("the limit is set", func() error { return f.admin.ConfigSet(ctx, "maxmemory", "1").Err() })
	f.wait(lease / 2)
	f.eventually("the limit is lifted", func() error { return f.admin.ConfigSet(ctx, "maxmemory", "0").Err() })
}

// step moves the clock of the server.
func (f *field) step(by time.Duration) {
	f.offset = min(max(f.offset+by, -mostOffset), mostOffset)
	f.log.Add(history.Record{Kind: history.Step, N: f.offset.Microseconds()})
	f.eventually("the clock is set", func() error {
		return f.admin.Set(f.t.Context(), offsetKey, f.offset.Microseconds(), 0).Err()
	})
	f.log.Add(history.Record{Kind: history.Step, N: f.offset.Microseconds()})
}
