package main

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strings"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// sidekiqSets are the states of a Sidekiq's jobs, and the set that has those of each; ready ones are in their queue.
var sidekiqSets = map[string]sidekiq.Set{
	"scheduled": sidekiq.Schedule, "retry": sidekiq.Retry, "dead": sidekiq.Dead,
}

var sidekiqStates = []string{"ready", "scheduled", "retry", "dead"}

// sidekiqVerb is what a command on queues or jobs does in a dialect of Sidekiq.
type sidekiqVerb struct {
	detail string
	output string   // in place of the native one; empty if that is the same
	flags  []string // of the native command, that it honours
	states []string // that it is for; the first is that of --all without --state
	named  bool     // its jobs are named, or all of a state
	run    func(ctx context.Context, j *sidekiqJobs) error
}

var sidekiqVerbs = map[string]sidekiqVerb{
	"queues ls": {
		detail: "lists all queues of that Sidekiq.", output: `{"queue","ready","latency_ms"}`,
		flags: []string{"watch"}, run: listSidekiqQueues,
	},
	"jobs ls": {
		detail: `the states are ready, scheduled, retry and dead; kind is the class. The sets are read whole:
they have the jobs of all queues. Without --all a job may be missing where others leave meanwhile.`,
		flags: []string{"state", "limit", "all"}, states: sidekiqStates, run: listSidekiqJobs,
	},
	"jobs show": {
		detail: "an ID is a jid; body is the payload.", output: `{` + jobOutput + `,"body"}`,
		states: sidekiqStates, named: true, run: showSidekiqJobs,
	},
	"jobs requeue": {
		detail: "--state retry or scheduled too: those jobs need not be due. Their retry_count stays.",
		flags:  []string{"state", "all"}, states: []string{"dead", "retry", "scheduled"}, named: true,
		run: changeSidekiqJobs("requeued", func(ctx context.Context, j *sidekiqJobs, f sidekiqFound) (bool, error) {
			return j.d.Requeue(ctx, f.ref())
		}),
	},
	"jobs delete": {
		detail: "--state retry too.", flags: []string{"state", "all"},
		states: []string{"dead", "retry", "scheduled", "ready"}, named: true,
		run: changeSidekiqJobs("deleted", func(ctx context.Context, j *sidekiqJobs, f sidekiqFound) (bool, error) {
			if f.state == "ready" {
				return j.d.Drop(ctx, j.queue, f.JID)
			}
			return j.d.Delete(ctx, f.ref())
		}),
	},
	"jobs reschedule": {
		detail: "--state retry too.", flags: []string{"state", "all", "in", "at"},
		states: []string{"scheduled", "retry"}, named: true, run: rescheduleSidekiqJobs,
	},
}

// inSidekiq gives those of the commands that have a verb in Sidekiq a --dialect.
func inSidekiq(all []*command) []*command {
	for _, c := range all {
		if verb, ok := sidekiqVerbs[c.name]; ok {
			verb.join(c)
		}
	}
	return all
}

func (v sidekiqVerb) join(c *command) {
	j := &sidekiqJobs{verb: v, name: c.name}
	state := &laterState{}
	flags, check, run := c.flags, c.check, c.run
	c.detail += "\nIn a dialect of Sidekiq: " + v.detail
	if v.output != "" {
		c.output += ";\n  in a dialect of Sidekiq " + v.output
	}
	c.flags = func(fs *flag.FlagSet) {
		flags(fs)
		dialectFlag(fs, &j.dialect, sidekiqs...)
		if f := fs.Lookup("state"); f != nil {
			state.native, f.Value = f.Value, state
		}
		j.fs = fs
	}
	c.check = func(s *session) error {
		if j.dialect != "" {
			j.s, j.state = s, state.text
			return j.check()
		}
		if err := state.set(); err != nil {
			return err
		}
		return check(s)
	}
	c.run = func(s *session) error {
		if j.dialect == "" {
			return run(s)
		}
		return s.withClient(func(ctx context.Context, client lua.Client) (err error) {
			if j.d, err = s.openSidekiq(client, j.dialect); err != nil {
				return err
			}
			return v.run(ctx, j)
		})
	}
}

// laterState is a --state that is read once the dialect is known: each has states of its own.
type laterState struct {
	native flag.Value
	text   string
}

func (l *laterState) String() string { return l.text }

func (l *laterState) Set(v string) error {
	l.text = v
	return nil
}

func (l *laterState) set() error {
	if l.text == "" {
		return nil
	}
	if err := l.native.Set(l.text); err != nil {
		return usagef("--state: %v", err)
	}
	return nil
}

// sidekiqJobs is one run of a command on the jobs of a Sidekiq.
type sidekiqJobs struct {
	s       *session
	fs      *flag.FlagSet
	verb    sidekiqVerb
	name    string // of the command
	dialect string
	state   string
	queue   string
	due     time.Time // of --at
	d       *sidekiq.Dialect
}

// value is that of a flag of the native command.
func value[T any](j *sidekiqJobs, name string) (v T) {
	if f := j.fs.Lookup(name); f != nil {
		if g, ok := f.Value.(flag.Getter); ok {
			v, _ = g.Get().(T)
		}
	}
	return v
}

func (j *sidekiqJobs) check() error {
	refused := map[string]bool{}
	j.fs.Visit(func(f *flag.Flag) {
		refused[f.Name] = f.Name != "dialect" && !isGlobal(f.Name) && !slices.Contains(j.verb.flags, f.Name)
	})
	if err := foreignFlags(j.dialect, refused); err != nil {
		return err
	}
	if err := j.s.checkNamespace(); err != nil {
		return err
	}
	if j.verb.states == nil {
		return errors.Join(j.watch().check(), j.s.noArgs())
	}
	if err := j.checkState(); err != nil {
		return err
	}
	if err := j.checkTimes(); err != nil {
		return err
	}
	all := value[bool](j, "all")
	switch {
	case len(j.s.args) == 0:
		return usagef("the queue is missing; luatomic queues ls --dialect %s lists them", j.dialect)
	case !j.verb.named && len(j.s.args) > 1:
		return usagef("one queue, but there are %d arguments: %q; leave the others out", len(j.s.args), j.s.args)
	case !j.verb.named && value[int](j, "limit") < 1:
		return usagef("--limit %d is below 1; write 1 or more, or --all", value[int](j, "limit"))
	case j.verb.named && len(j.s.args) == 1 && !all:
		return usagef("write the queue and the jids of its jobs; luatomic jobs ls QUEUE --dialect %s lists them",
			j.dialect)
	case j.verb.named && len(j.s.args) > 1 && all:
		return usagef("either ids or --all; leave one of them out")
	case j.verb.named && j.state != "" && !all:
		return usagef("--state goes with --all; leave it out, or the ids")
	}
	j.queue = j.s.args[0]
	return keys.CheckName("queue", j.queue)
}

func (j *sidekiqJobs) checkState() error {
	switch {
	case j.state == "" || slices.Contains(j.verb.states, j.state):
		return nil
	case slices.Contains(sidekiqStates, j.state):
		return usagef("%s is for jobs that are %s, not %s", j.name, strings.Join(j.verb.states, " or "), j.state)
	}
	return usagef("no job is %q; write %s", j.state, strings.Join(j.verb.states, " or "))
}

func (j *sidekiqJobs) checkTimes() (err error) {
	in, at := value[time.Duration](j, "in"), value[string](j, "at")
	switch {
	case slices.Contains(j.verb.flags, "in") && at == "" && !given(j.fs, "in"):
		return errNoTime
	case in < 0:
		return usagef("--in %v is below zero; write 0 or more", in)
	case in > 0 && at != "":
		return usagef("both --in and --at; leave one of them out")
	case at != "":
		if j.due, err = parseAt(at); err != nil {
			return usagef("--at: %v", err)
		}
	}
	return nil
}

func (j *sidekiqJobs) watch() *interval {
	watch, _ := j.fs.Lookup("watch").Value.(*interval)
	return watch
}
