package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/testdata"
)

func demoCommand() *command {
	file, hold := "", false
	return &command{
		name: "demo", args: "[flags]",
		about: "Show the main operations on real input, in a few seconds.",
		detail: `Pushes jobs, ready and delayed, moves those that come due, lets two consumers finish
all of them under a lock, makes a call, and checks the numbers after each step. Without --redis and
REDIS_URL it runs redis-server or valkey-server from PATH on a private socket, or else an imitation
inside this process. On a server of yours it uses keys under a new random prefix and deletes those
at the end. It needs a user that may use every prefix. With --hold it then keeps jobs, locks and
calls to look at, with luatomic web for one, until Ctrl-C.`,
		output: `one object for each of the six steps, {"step","name", ...}, with --hold a seventh with "redis" and "prefix"; the
  story is on stderr`,
		example: `luatomic demo`,
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&file, "file", "",
				"jobs in the form that push reads, from `FILE`; else 62 captured Sidekiq payloads")
			fs.BoolVar(&hold, "hold", false, "keep something to look at until Ctrl-C")
		},
		check: func(s *session) error {
			if len(s.args) > 0 {
				return usagef("demo takes no arguments; a file is --file FILE")
			}
			return nil
		},
		run: func(s *session) error { return runDemo(s, file, hold) },
	}
}

// demo is the state that the steps share.
type demo struct {
	s       *session
	ctx     context.Context
	client  redis.UniversalClient
	keys    *keyLog
	where   string
	address string // of the server
	prefix  string
	queue   *queue.Queue
	began   bool // a push may have made keys

	jobs     []queue.Job          // as pushed, ids included
	body     map[string]string    // by id
	due      map[string]time.Time // by id, for the scheduled ones
	finished map[string]int       // by id: how often it was finished
	fences   fenceLog
	mu       sync.Mutex // guards finished
}

func runDemo(s *session, file string, hold bool) error {
	jobs, err := demoJobs(file)
	if err != nil {
		return err
	}
	d := &demo{
		s: s, ctx: s.signals.stop, jobs: jobs, keys: newKeyLog(),
		body: map[string]string{}, due: map[string]time.Time{}, finished: map[string]int{},
	}
	done, err := d.open()
	if err != nil {
		return err
	}
	defer done()
	for _, step := range []func() error{d.stepServer, d.stepPush, d.stepPromote, d.stepWork, d.stepCall, d.stepTotals} {
		err := step()
		if s.signals.stop.Err() != nil {
			s.note("")
			s.note("Interrupted: the keys of the demo are being deleted.")
			return errInterrupted
		}
		if err != nil {
			return err
		}
	}
	if hold {
		return d.hold()
	}
	return nil
}

// demoJobs reads the whole input: the demo keeps it to compare at the end.
func demoJobs(file string) ([]queue.Job, error) {
	var in io.Reader = strings.NewReader(testdata.Jobs)
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("the jobs cannot be read: %w; name their file with --file, or leave it out", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	var jobs []queue.Job
	for lines := newBatches[queue.Job](in, &lineForm{}); ; {
		b, err := lines.next()
		if len(b.broken) > 0 {
			return nil, fmt.Errorf("%s, line %d: %w", file, b.broken[0].line, b.broken[0].err)
		}
		jobs = append(jobs, b.jobs...)
		switch {
		case errors.Is(err, io.EOF) && len(jobs) == 0:
			return nil, fmt.Errorf("%s has no job in it; write one a line, as luatomic push reads them", file)
		case errors.Is(err, io.EOF):
			return jobs, nil
		case err != nil:
			return nil, err
		}
	}
}

// open finds or starts the server. done deletes the keys that the demo made.
func (d *demo) open() (done func(), err error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, err
	}
	d.prefix = d.s.prefix + "demo-" + id.String()[:8] + ":"
	stop := func() {}
	address := d.s.chosenURL()
	d.where = "the one you named, under the prefix " + d.prefix
	files := d.s.tls
	if address == "" {
		files = tlsFlags{}
		server, err := startPrivate(d.ctx, d.s)
		if err != nil {
			return nil, err
		}
		address, d.where, stop = server.url, server.about, server.close
	}
	d.address = address
	if d.client, err = dial(d.ctx, address, files); err != nil {
		stop()
		return nil, err
	}
	d.client.AddHook(d.keys)
	if d.queue, err = d.newQueue(30 * time.Second); err != nil {
		_ = d.client.Close()
		stop()
		return nil, err
	}
	return func() {
		if err := d.clean(); err != nil {
			d.s.warn(fmt.Errorf("cannot delete the keys under %q: %w; delete them by hand", d.prefix, err))
		}
		_ = d.client.Close()
		stop()
	}, nil
}

// clean deletes the keys of the demo. Before the first push there are none, and a user that may not push may not
// delete.
func (d *demo) clean() error {
	if !d.began {
		return nil
	}
	return d.keys.end(d.client)
}

func (d *demo) newQueue(lease time.Duration) (*queue.Queue, error) {
	return queue.New(d.client, "jobs", &queue.Options{Prefix: d.prefix, Lease: lease, Receipt: time.Minute})
}

// head writes the title of a step.
func (d *demo) head(n int, title string) { d.s.note(""); d.s.note("%d. %s", n, title) }

// say writes a line of the story.
func (d *demo) say(format string, args ...any) { d.s.note("   "+format, args...) }

// broken is the error of a demo that found a promise broken.
func broken(format string, args ...any) error {
	return fmt.Errorf("the demo found a broken promise: "+format+"; please report it with this output", args...)
}

// millis is a duration as the output shows it, in ms with three digits.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
