package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

type pushCmd struct {
	file string
	in   time.Duration
	at   string
	raw  bool
	skip int
	form lineForm

	dialect string
}

func pushCommand() *command {
	p := &pushCmd{}
	return &command{
		name: "push", args: "QUEUE [flags]", tagged: true,
		about: "Push jobs from NDJSON, ready or for later.",
		detail: `A line is {"body": any JSON, "id"?, "at"? (RFC 3339 or Unix ms), "delay"? ("30s"),
"unique"?, "unique_ttl"? ("1h")}. The body keeps its bytes. Of jobs of one unique name only the
first goes in, until it is done or for unique_ttl.
Lines are pushed in batches of up to 1000 lines or 1 MiB, each all or none. A broken line is
reported on stderr with its number, and no line of its batch is pushed; the other batches are, and
the exit code is 1.
The queue takes an id once: with ids, a whole push can be repeated. Ctrl-C ends it after the batch
in flight. In a dialect of Sidekiq a line is {"class", "args"?, "queue"?, "jid"?, "at"? (seconds),
...}, or with --raw a finished payload, which keeps its bytes; QUEUE is for lines without their own.
In redisinaction it is {"name", "args"?, "delay"?}.`,
		output: `{"pushed","ready","scheduled","duplicates","now"}, after broken lines also "failed_lines" (the first
  1000 of their numbers) and "skipped" (all lines that were not pushed); now: the server's time of the
  last batch in ms`,
		example: `printf '{"body":{"to":"ann"}}\n{"body":{"to":"bob"},"delay":"30s"}\n' | luatomic push mail`,
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&p.file, "file", "", "read `FILE` instead of stdin; - is stdin")
			fs.DurationVar(&p.in, "in", 0, "`DURATION` until jobs without a time of their own are due")
			fs.StringVar(&p.at, "at", "",
				"`TIME`, RFC 3339 or Unix ms, at which jobs without a time of their own are due")
			fs.IntVar(&p.skip, "skip", 0, "`N` lines at the start are skipped: an earlier push has pushed them")
			fs.BoolVar(&p.raw, "raw", false, "each line is a whole body")
			dialectFlag(fs, &p.dialect, append(slices.Clone(sidekiqs), redisInAction)...)
		},
		check: p.check,
		run:   p.run,
	}
}

func (p *pushCmd) check(s *session) error {
	if err := s.oneArg("queue"); err != nil {
		return err
	}
	p.form = lineForm{raw: p.raw, delay: p.in}
	if err := p.checkDialect(s); err != nil {
		return err
	}
	switch {
	case p.skip < 0:
		return usagef("--skip %d is below zero; write 0 or more", p.skip)
	case p.in < 0:
		return usagef("--in %v is below zero; write 0 or more", p.in)
	case p.in > 0 && p.at != "":
		return usagef("both --in and --at; leave one of them out")
	case p.at != "":
		at, err := parseAt(p.at)
		if err != nil {
			return usagef("--at: %v", err)
		}
		p.form.at = at
	}
	return nil
}

// pushResult is the object on stdout.
type pushResult struct {
	Pushed      int    `json:"pushed"`
	Ready       int    `json:"ready"`
	Scheduled   int    `json:"scheduled"`
	Duplicates  int    `json:"duplicates"`
	Now         *int64 `json:"now"`
	FailedLines []int  `json:"failed_lines,omitempty"`
	Skipped     int    `json:"skipped,omitempty"`
}

// keptLines bounds FailedLines, and with it the memory of a file of broken lines.
const keptLines = 1000

func (p *pushCmd) run(s *session) error {
	in, size, err := p.open(s)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	var out pushResult
	err = p.dispatch(s, client, in, newProgress(s, "pushed", size), &out)
	if emitErr := s.emit(out); emitErr != nil {
		return errors.Join(err, emitErr)
	}
	if err == nil && out.Skipped > 0 {
		err = &exitError{code: exitFailed}
	}
	return err
}

// dispatch pushes in the dialect.
func (p *pushCmd) dispatch(s *session, client redis.UniversalClient, in io.Reader, bar *progress,
	out *pushResult) error {
	if p.dialect == redisInAction {
		app := redisinaction.New(client, &redisinaction.Options{Prefix: s.prefix})
		lines := newBatches[redisinaction.Task](in, &taskForm{app, p.in}).after(p.skip)
		return pushAll(s, lines, executeAll(app, s.args[0]), bar, out)
	}
	if p.dialect != "" {
		d, err := s.openSidekiq(client, p.dialect)
		if err != nil {
			return err
		}
		lines := newBatches[sidekiq.Job](in, &sidekiqForm{d, s.args[0], p.raw, p.form.at, p.in}).after(p.skip)
		return pushAll(s, lines, pushSidekiq(d), bar, out)
	}
	q, err := queue.New(client, s.args[0], &queue.Options{Prefix: s.prefix, Tag: s.tag})
	if err != nil {
		return err
	}
	lines := newBatches[queue.Job](in, &p.form).after(p.skip)
	return pushAll(s, lines, func(ctx context.Context, jobs []queue.Job) (pushed, error) {
		r, err := q.Push(ctx, jobs...)
		return pushed{r.Ready, r.Scheduled, len(r.Duplicates), r.Now}, err
	}, bar, out)
}

// open returns the input and its size, -1 if it has none.
func (p *pushCmd) open(s *session) (io.ReadCloser, int64, error) {
	if p.file == "" || p.file == "-" {
		if isTerminal(os.Stdin) {
			s.note("reading jobs from the terminal, one a line; Ctrl-D ends them")
		}
		return os.Stdin, -1, nil
	}
	f, err := os.Open(p.file)
	if err != nil {
		return nil, 0, fmt.Errorf("the jobs cannot be read: %w; name their file with --file, or leave it out for stdin",
			err)
	}
	info, err := f.Stat()
	switch {
	case err == nil && info.IsDir():
		_ = f.Close()
		return nil, 0, fmt.Errorf("--file %s is a folder; name a file of NDJSON", p.file)
	case err == nil && info.Mode().IsRegular():
		return f, info.Size(), nil
	}
	return f, -1, nil
}

type readBatch[T any] struct {
	*batch[T]
	err error
}

// pusher sends the jobs of one batch.
type pusher[T any] func(ctx context.Context, jobs []T) (pushed, error)

// pushed is the outcome of the jobs of one batch.
type pushed struct {
	ready, scheduled, duplicates int
	now                          time.Time
}

// pushAll pushes batch after batch. Reading has a goroutine of its own, because a
// read of a terminal or pipe cannot be interrupted; it is one batch ahead.
func pushAll[T any](s *session, lines *batches[T], send pusher[T], bar *progress, out *pushResult) error {
	defer bar.clear()
	from := make(chan readBatch[T])
	stop := s.signals.stop
	go func() {
		for {
			b, err := lines.next()
			select {
			case from <- readBatch[T]{b, err}:
			case <-stop.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		var b readBatch[T]
		select {
		case <-stop.Done():
			return errInterrupted
		case b = <-from:
		}
		if stop.Err() != nil { // select chooses at random
			return errInterrupted
		}
		if err := pushBatch(s, send, b.batch, out); err != nil {
			return err
		}
		bar.show(out.Pushed, b.read)
		if errors.Is(b.err, io.EOF) {
			return nil
		}
		if b.err != nil {
			return fmt.Errorf("reading after line %d: %w", b.last, b.err)
		}
	}
}

// failed says what is known of the lines of a batch that could not be pushed, and how to go on.
func (b *batch[T]) failed(err error) error {
	err = fmt.Errorf("lines %d to %d: %w", b.first, b.last, err)
	next := "push them again"
	if b.first > 1 {
		next = fmt.Sprintf("go on there with --skip %d", b.first-1)
	}
	switch {
	case errors.Is(err, lua.ErrOutcomeUnknown):
		return fmt.Errorf("%w; these lines may be in the queue; if they have ids, %s; %s", err, next, b.withoutIDs())
	case errors.Is(err, lua.ErrNotExecuted), errors.Is(err, lua.ErrRefused), errors.Is(err, queue.ErrFull):
		return fmt.Errorf("%w; nothing of these lines is pushed; %s", err, next)
	}
	return err
}

// withoutIDs is how to go on where a repeat would add jobs a second time.
func (b *batch[T]) withoutIDs() string {
	return fmt.Sprintf("without ids, compare luatomic stats with the number before: "+
		"--skip %d pushes them again, --skip %d leaves them out", b.first-1, b.last)
}

// pushBatch sends one batch, unless a line of it is broken. The first interrupt does
// not cut it short.
func pushBatch[T any](s *session, send pusher[T], b *batch[T], r *pushResult) error {
	if len(b.broken) > 0 {
		for _, e := range b.broken {
			s.warn(fmt.Errorf("line %d: %w", e.line, e.err))
			if len(r.FailedLines) < keptLines {
				r.FailedLines = append(r.FailedLines, e.line)
			}
		}
		r.Skipped += b.lines
		s.note("luatomic: none of the lines %d to %d, one batch, is pushed; repair the broken ones and push them again",
			b.first, b.last)
		return nil
	}
	if len(b.jobs) == 0 {
		return nil
	}
	p, err := send(s.signals.hard, b.jobs)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			s.warn(fmt.Errorf("interrupted while lines %d to %d were pushed: they may be in the queue; "+
				"with ids they can be pushed again; %s", b.first, b.last, b.withoutIDs()))
			return errInterrupted
		}
		return b.failed(err)
	}
	r.Ready += p.ready
	r.Scheduled += p.scheduled
	r.Pushed = r.Ready + r.Scheduled
	r.Duplicates += p.duplicates
	now := p.now.UnixMilli()
	r.Now = &now
	return nil
}
