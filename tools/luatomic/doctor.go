package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/rpc"
)

// report writes a check: what is to be done stands below what is wrong.
func (s *session) report(r checkResult) error {
	if !s.tables {
		return s.emit(r)
	}
	verdict, colour := "?   ", yellow
	switch {
	case r.OK == nil:
	case !*r.OK:
		verdict, colour = "FAIL", red
	case r.Cure != nil:
		verdict = "warn"
	default:
		verdict, colour = "ok  ", green
	}
	if s.colours {
		verdict = coloured(verdict, colour)
	}
	detail := show.Message(messageText, r.Detail)
	if r.Node != "" {
		detail += " (" + show.Cell(cellText, r.Node) + ")"
	}
	lines := []string{fmt.Sprintf("%s  %-13s %s", verdict, r.Check, detail)}
	if r.Cure != nil {
		lines = append(lines, strings.Repeat(" ", 20)+"cure: "+show.Message(messageText, *r.Cure))
	}
	return s.print(lines)
}

// checkResult is one line of doctor. OK is null where the server does not show it. One that is OK and has a cure is a
// warning.
type checkResult struct {
	Check  string  `json:"check"`
	OK     *bool   `json:"ok"`
	Detail string  `json:"detail"`
	Cure   *string `json:"cure"`
	Node   string  `json:"node,omitempty"`
}

func doctorCommand() *command {
	dialect, roles := "", []luatomic.Role(nil)
	return &command{
		name: "doctor", args: "[flags]",
		about: "Check a server: its settings, and what this user may do.",
		detail: `Settings are checked on each master: version, eviction, persistence, replication,
cluster, clock, and that a connection without a password may do nothing where the URL names a
user. Then it does what programs do, under --prefix: it loads the scripts, subscribes to a
channel, takes a lock, finishes a job and makes a call, all under random names; their keys expire
within minutes, and a job that cannot be finished is deleted. For a user that acl --role prints, the same --role
leaves out what its program does not do. With --dialect sidekiq it reads samples of a live Sidekiq instead, and
writes nothing: which version it is by its bytes, its namespace, fields whose middleware runs in Ruby only,
payloads that cannot be read. At last it looks for jobs that no process works on. Exit code 1 if a check fails; a
warning is a check that is ok and has a cure.`,
		output: `{"check","ok","detail","cure"} for each check, with "node" for settings; ok: null if the server does not
  show it`,
		example: `luatomic doctor --redis redis://app:PASSWORD@db.example:6379 --prefix app:`,
		flags: func(fs *flag.FlagSet) {
			rolesFlag(fs, &roles)
			dialectFlag(fs, &dialect, append([]string{anySidekiq}, sidekiqs...)...)
		},
		check: func(s *session) error {
			if err := checkRoles(roles, dialect); err != nil {
				return err
			}
			if dialect != "" {
				if err := s.checkNamespace(); err != nil {
					return err
				}
			}
			return s.noArgs()
		},
		run: func(s *session) error { return examine(s, dialect, roles) },
	}
}

func examine(s *session, dialect string, roles []luatomic.Role) error {
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	failed := 0
	report := func(r checkResult) error {
		if r.OK != nil && !*r.OK {
			failed++
		}
		return s.report(r)
	}
	settings, err := luatomic.CheckServer(s.signals.stop, client)
	for _, c := range settings {
		if err := report(settingResult(c)); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
	case dialect != "":
		err = examineSidekiq(s, client, dialect, report)
	default:
		if err = report(examineDefault(s.signals.stop, client)); err == nil {
			err = examineUse(s, client, roles, report)
		}
	}
	switch {
	case s.signals.stop.Err() != nil:
		return errInterrupted
	case err == nil && failed > 0:
		return fmt.Errorf("checks failed: %d; the line of each has its cure", failed)
	}
	return err
}

func settingResult(c luatomic.ServerCheck) checkResult {
	r := checkResult{Check: c.Check, Detail: c.Detail, Node: c.Node}
	if c.Verdict != luatomic.CheckUnknown {
		passed := c.Verdict != luatomic.CheckFailed
		r.OK = &passed
	}
	if c.Cure != "" {
		r.Cure = &c.Cure
	}
	return r
}

// examineDefault tries a connection that does not authenticate. RESET makes any connection such a one, so what it may
// do is what every user may do.
func examineDefault(ctx context.Context, client redis.UniversalClient) (r checkResult) {
	r.Check = "default user"
	one, ok := client.(*redis.Client)
	if !ok {
		r.Detail = "not tried on a cluster: ACL GETUSER default shows it on each node"
		return r
	}
	o := *one.Options()
	named := o.Username != "" || o.Password != ""
	o.Username, o.Password, o.MaxRetries, o.DialerRetries, o.PoolSize = "", "", -1, 1, 1
	o.CredentialsProvider, o.CredentialsProviderContext, o.StreamingCredentialsProvider = nil, nil, nil
	bare := redis.NewClient(&o)
	defer func() { _ = bare.Close() }()
	ctx, cancel := context.WithTimeout(ctx, useWithin)
	defer cancel()
	err := bare.Do(ctx, "EXISTS", "luatomic:doctor").Err()
	pass, fail := true, false
	switch {
	case err != nil && !strings.Contains(err.Error(), "NOAUTH") && !lacksRights(err.Error()):
		r.Detail = "not known: " + oneLine(err)
	case err != nil:
		r.OK, r.Detail = &pass, "a connection without a password may not read keys"
	case !named:
		r.OK, r.Detail = &pass, "no user is named: all who reach this server share all that it has"
	default:
		cure := "ACL SETUSER default off, or give it a password, after luatomic acl has made the users"
		r.OK, r.Cure = &fail, &cure
		r.Detail = "a connection without a password reads and writes keys, and RESET makes one of any connection, " +
			"so anyone can avoid the limits of this user"
	}
	return r
}

// channels subscribes as a lock's waiter does, and publishes as its holder does.
func (p *probeUse) channels(ctx context.Context) (string, error) {
	channel := p.prefix + "lock:c:" + p.name
	if _, one := p.client.(*redis.Client); !one {
		channel = p.prefix + "lock:{" + p.name + "}:c:" + p.name
	}
	ps := p.client.Subscribe(ctx, channel)
	defer func() { _ = ps.Close() }()
	if _, err := ps.Receive(ctx); err != nil {
		return "", fmt.Errorf("subscribe: %w", err)
	}
	start := time.Now()
	if err := p.client.Publish(ctx, channel, "hello").Err(); err != nil {
		return "", fmt.Errorf("publish: %w", err)
	}
	if _, err := ps.ReceiveMessage(ctx); err != nil {
		return "", fmt.Errorf("no message is received: %w", err)
	}
	return "received after " + took(start), nil
}

func (p *probeUse) lock(ctx context.Context) (string, error) {
	locker := lock.New(p.client, &lock.Options{Prefix: p.prefix, Note: "luatomic doctor"})
	defer func() { _ = locker.Close() }()
	start := time.Now()
	lease, err := locker.Try(ctx, p.name)
	if err != nil {
		return "", err
	}
	if err := errors.Join(lease.Extend(ctx), lease.Release(ctx)); err != nil {
		return "", err
	}
	return "acquired, extended and released in " + took(start), nil
}

func (p *probeUse) limit(ctx context.Context) (string, error) {
	l := limit.New(p.client, &limit.Options{Prefix: p.prefix})
	of := l.Rate(p.name, limit.Per(1, time.Second))
	start := time.Now()
	if _, err := l.Allow(ctx, 1, of); err != nil {
		return "", err
	}
	if err := l.Reset(ctx, of); err != nil {
		return "", err
	}
	return "spent and reset in " + took(start), nil
}

var doctorEcho = rpc.NewMethod[string, string]("echo")

func (p *probeUse) rpc(ctx context.Context) (string, error) {
	var refused atomic.Pointer[error] // why the node could not join; its Run tries again
	bus, err := rpc.New(p.client, p.name, &rpc.Options{Prefix: p.prefix, Node: p.name, OnError: func(err error) {
		refused.CompareAndSwap(nil, &err) // the later ones follow from it
	}})
	if err != nil {
		return "", err
	}
	err = doctorEcho.Serve(bus, func(_ context.Context, in string) (string, error) { return in, nil }, nil)
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- bus.Run(running) }()
	start := time.Now()
	_, err = doctorEcho.Call(ctx, bus, "hello", nil)
	stop()
	ran := <-ended
	if err != nil {
		if why := refused.Load(); why != nil {
			return "", *why
		}
		if ran != nil && !errors.Is(ran, context.Canceled) {
			err = errors.Join(err, ran)
		}
		return "", err
	}
	return "called and answered in " + took(start), nil
}

// took is the time since start, for people.
func took(start time.Time) string { return time.Since(start).Round(10 * time.Microsecond).String() }

// noArgs checks that nothing follows the command.
func (s *session) noArgs() error {
	if len(s.args) > 0 {
		return usagef("this command takes no arguments, but there are %d: %q; leave them out", len(s.args), s.args)
	}
	return nil
}
