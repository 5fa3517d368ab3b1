package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/luatomictest"
)

// sources are the ways to a server besides a program on PATH.
var sources []luatomictest.Source

// row is one piece of work, done by several entrants.
type row struct {
	name, what, main string
	entrants         []entrant
}

// contest is how the entrants of a row take turns. They alternate in slots; where that makes no sense, apart says why,
// and each round opens and runs one entrant after the other.
type contest struct {
	row
	apart string
	slot  time.Duration // 0: that of the run
}

type entrant struct {
	name string
	kind kind
	note string // where it stores or promises more, or less
	open func(b *bench) (work, error)
}

// work is what an entrant does in one slot of about that length. It is called once before, to warm it up.
type work func(span time.Duration) (metrics, error)

// whole is work that is opened anew each time that it is done.
func whole(run func(b *bench) (metrics, error)) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		return func(time.Duration) (metrics, error) { return run(b) }, nil
	}
}

// bench is what the entrants of a run share.
type bench struct {
	ctx     context.Context
	url     string
	own     bool // the server is this run's own: FLUSHALL cleans it
	unclean bool // nothing is removed: there is no server
	probe   *redis.Client
	pins    *pinning
	opts    options
	lease   time.Duration // of a node; 0: the default
	space   string        // in the name of every key of one entrant
	closers []func()      // of that entrant
}

// measure runs all rows that match, one after the other.
func measure(ctx context.Context, o options, url string, pattern *regexp.Regexp) (*result, error) {
	logf := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	b := &bench{ctx: ctx, url: url, opts: o}
	r := &result{Date: time.Now().UTC(), Machine: thisMachine(), Peers: moduleVersions(), Options: o,
		Absent: make(map[string]string)}
	from := "--url"
	if url == "" {
		server, err := luatomictest.Open(logf, sources...)
		if err != nil {
			return nil, err
		}
		if server.Stop != nil {
			defer server.Stop()
		}
		b.url, b.own, from = server.URL, os.Getenv("LUATOMIC_REDIS_URL") == "", server.From
	}
	if err := b.connect(); err != nil {
		return nil, err
	}
	defer b.probe.Close()
	version, err := b.serverVersion()
	if err != nil {
		return nil, err
	}
	r.Server = version + " (" + from + ")"
	logf("bench: %s; %s", r.Server, r.Machine)
	for _, row := range rows(b, r) {
		if !pattern.MatchString(row.name) {
			continue
		}
		err := b.measureRow(row, func(round int, e entrant, m metrics) {
			r.add(row, e, m)
			logf("bench: round %d: %s: %s: %s", round+1, row.name, e.name, m)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.name, err)
		}
	}
	if len(r.Rows) == 0 {
		return nil, fmt.Errorf("no row matches %q; without -rows all run", pattern)
	}
	r.Options.Pinned = b.pins.done
	return r, nil
}

func (b *bench) connect() error {
	options, err := redis.ParseURL(b.url)
	if err != nil {
		return fmt.Errorf("the server's URL: %w", err)
	}
	b.probe = redis.NewClient(options)
	if err := b.probe.Ping(b.ctx).Err(); err != nil {
		return fmt.Errorf("the server at %s does not answer: %w", options.Addr, err)
	}
	info, err := b.info("server")
	if err != nil {
		return err
	}
	b.pins = newPinning(info["process_id"])
	return nil
}

func (b *bench) serverVersion() (string, error) {
	info, err := b.info("server")
	if err != nil {
		return "", err
	}
	if v := info["valkey_version"]; v != "" {
		return "Valkey " + v, nil
	}
	return "Redis " + info["redis_version"], nil
}

// end closes what the entrant has opened.
func (b *bench) end() {
	for _, c := range slices.Backward(b.closers) {
		c()
	}
	b.closers = nil
}

// clean removes what the entrant stored.
func (b *bench) clean() error {
	if b.unclean {
		return nil
	}
	if b.own {
		return b.probe.FlushAll(b.ctx).Err()
	}
	it := b.probe.Scan(b.ctx, 0, "*"+b.space+"*", 1000).Iterator()
	for it.Next(b.ctx) {
		if err := b.probe.Unlink(b.ctx, it.Val()).Err(); err != nil {
			return err
		}
	}
	return it.Err()
}

func (b *bench) close(f func()) { b.closers = append(b.closers, f) }

// client is a go-redis client with its defaults and at least so many connections.
func (b *bench) client(connections int) *redis.Client {
	options, _ := redis.ParseURL(b.url) // connect has parsed it
	options.PoolSize = max(connections, 10*runtime.NumCPU())
	options.PoolTimeout = time.Minute
	c := redis.NewClient(options)
	b.close(func() { _ = c.Close() })
	return c
}

// span is how long a timed loop runs.
func (b *bench) span() time.Duration { return b.opts.Span }

// size is n, or a tenth in a quick run.
func (b *bench) size(n int) int {
	if b.opts.Quick {
		return n / 10
	}
	return n
}

// cost is what the server has spent so far.
type cost struct {
	cpu, lua time.Duration
	commands float64
}

func (b *bench) cost() (c cost, err error) {
	cpu, err := b.info("cpu")
	if err != nil {
		return c, err
	}
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, _ := strconv.ParseFloat(cpu[field], 64)
		c.cpu += time.Duration(seconds * float64(time.Second))
	}
	stats, err := b.info("commandstats")
	if err != nil {
		return c, err
	}
	for name, line := range stats {
		calls, usec := statFields(line)
		if name == "cmdstat_info" {
			continue
		}
		c.commands += calls
		if strings.HasPrefix(name, "cmdstat_eval") {
			c.lua += time.Duration(usec) * time.Microsecond
		}
	}
	return c, nil
}

func statFields(line string) (calls, usec float64) {
	for part := range strings.SplitSeq(line, ",") {
		switch key, value, _ := strings.Cut(part, "="); key {
		case "calls":
			calls, _ = strconv.ParseFloat(value, 64)
		case "usec":
			usec, _ = strconv.ParseFloat(value, 64)
		}
	}
	return calls, usec
}

func (b *bench) info(section string) (map[string]string, error) {
	text, err := b.probe.Info(b.ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// charge adds what the server spent on each of n since before.
func (b *bench) charge(m metrics, before cost, n float64) error {
	after, err := b.cost()
	if err != nil {
		return err
	}
	m["server_us"] = float64((after.cpu - before.cpu).Microseconds()) / n
	m["lua_us"] = float64((after.lua - before.lua).Microseconds()) / n
	m["commands"] = (after.commands - before.commands) / n
	return nil
}

// alone runs op on one goroutine, server and client on a core each. Each call is worth n.
func (b *bench) alone(n int, op func(ctx context.Context) error) (work, error) {
	return func(span time.Duration) (m metrics, err error) {
		b.pins.apart(func() { m, err = b.loop(span, n, op) })
		return m, err
	}, nil
}

func (b *bench) loop(span time.Duration, n int, op func(ctx context.Context) error) (metrics, error) {
	for warm := time.Now().Add(span / 10); time.Now().Before(warm); {
		if err := op(b.ctx); err != nil {
			return nil, err
		}
	}
	before, err := b.cost()
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	var was, is runtime.MemStats
	runtime.ReadMemStats(&was)
	start := time.Now()
	for at := start; at.Sub(start) < span; {
		if err := op(b.ctx); err != nil {
			return nil, err
		}
		now := time.Now()
		took = append(took, now.Sub(at))
		at = now
	}
	elapsed := time.Since(start)
	runtime.ReadMemStats(&is)
	m := latencies(took)
	calls := float64(len(took))
	m["per_s"] = calls * float64(n) / elapsed.Seconds()
	m["allocs"] = float64(is.Mallocs-was.Mallocs) / calls
	return m, b.charge(m, before, calls*float64(n))
}

func latencies(took []time.Duration) metrics {
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1000 }
	return metrics{"p50_us": at(0.5), "p99_us": at(0.99)}
}

// together runs op on so many goroutines. Each call is worth n.
func (b *bench) together(callers, n int, op func(ctx context.Context, caller int) error) (work, error) {
	return func(span time.Duration) (metrics, error) {
		if _, _, err := b.callers(span/10, callers, op); err != nil {
			return nil, err
		}
		before, err := b.cost()
		if err != nil {
			return nil, err
		}
		calls, elapsed, err := b.callers(span, callers, op)
		if err != nil {
			return nil, err
		}
		total := float64(calls * n)
		m := metrics{"per_s": total / elapsed.Seconds()}
		return m, b.charge(m, before, total)
	}, nil
}

// callers runs op on so many goroutines for the span, and returns the number of calls, and the time until the last
// caller has its reply.
func (b *bench) callers(span time.Duration, callers int, op func(ctx context.Context, caller int) error) (int,
	time.Duration, error) {
	ctx, cancel := context.WithCancelCause(b.ctx)
	defer cancel(nil)
	counts := make([]int, callers)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for ctx.Err() == nil && time.Since(start) < span {
				if err := op(ctx, i); err != nil {
					cancel(err)
					return
				}
				counts[i]++
			}
		})
	}
	wg.Wait()
	elapsed, total := time.Since(start), 0
	for _, c := range counts {
		total += c
	}
	return total, elapsed, context.Cause(ctx)
}

func (r *result) add(c contest, e entrant, m metrics) {
	to := r.row(c.name)
	if to == nil {
		r.Rows = append(r.Rows, measured{Name: c.name, What: c.what, Main: c.main, Apart: c.apart})
		to = &r.Rows[len(r.Rows)-1]
	}
	in := to.entrant(e.name)
	if in == nil {
		to.Entrants = append(to.Entrants, entrants{Name: e.name, Kind: e.kind, Note: e.note,
			Metrics: make(map[string][]float64)})
		in = &to.Entrants[len(to.Entrants)-1]
	}
	for name, value := range m {
		in.Metrics[name] = append(in.Metrics[name], value)
	}
}

func (m metrics) String() string {
	var parts []string
	for name := range m {
		parts = append(parts, fmt.Sprintf("%s %.4g", units[name].label, m[name]))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
