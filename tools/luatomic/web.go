package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/web"
)

// webFlags are those of luatomic web.
type webFlags struct {
	listen, remote string
	hosts          string
	write          bool
}

// remoteRoles are what --remote can give to other machines.
var remoteRoles = map[string]web.Role{"": web.Nobody, "view": web.Viewer, "operate": web.Operator}

func webCommand() *command {
	f := &webFlags{}
	return &command{
		name: "web", args: "[flags]",
		about: "Serve a page that shows queues, locks, calls and the server.",
		detail: `Read-only without --write. It is for this machine: it refuses to listen elsewhere, and to
answer requests of other machines, without --remote, which says what they may do. There is no login; put one in
front, or use the handler of package web in a program of yours. Each change is a line on stderr: what, to what, from
where. Ctrl-C ends it, and SIGTERM with exit code 0.`,
		output:  `{"url"}: where it listens`,
		example: `luatomic web --listen 127.0.0.1:8080 --write`,
		flags: func(fs *flag.FlagSet) {
			fs.StringVar(&f.listen, "listen", "127.0.0.1:8080", "`HOST:PORT` to listen on; port 0 is any free one")
			fs.BoolVar(&f.write, "write", false, "allow changes: jobs, settings of queues, locks")
			fs.StringVar(&f.remote, "remote", "",
				"`ROLE` of other machines: view, or operate (with --write and --hosts); none if left out")
			fs.StringVar(&f.hosts, "hosts", "",
				"`NAMES` by which the page is reached, with commas between them; others are refused")
		},
		check: func(s *session) error {
			if err := f.check(); err != nil {
				return err
			}
			return s.noArgs()
		},
		run: f.serve,
	}
}

func (f *webFlags) check() error {
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return usagef("--listen %q is no address; write HOST:PORT, such as 127.0.0.1:8080", f.listen)
	}
	if _, known := remoteRoles[f.remote]; !known {
		return usagef("--remote %q is no role; write view or operate", f.remote)
	}
	for name := range strings.SplitSeq(f.hosts, ",") {
		if f.hosts != "" && strings.TrimSpace(name) == "" {
			return usagef("--hosts %q has an empty name; write names with commas between them", f.hosts)
		}
		if strings.Contains(name, "/") {
			return usagef("--hosts: %q is no name of a host, so that it fits no request; write page.example", name)
		}
	}
	switch {
	case f.remote == "operate" && !f.write:
		return usagef("--remote operate changes nothing without --write; add it, or write --remote view")
	case f.remote == "operate" && f.hosts == "": // the Origin and the Host of such a site agree
		return usagef("--remote operate without the names of the page lets a site whose name is pointed at it make " +
			"changes; name them with --hosts NAME, or write --remote view")
	}
	if !isLoopback(host) && f.remote == "" {
		return usagef("--listen %s is open to other machines and the page has no login; "+
			"say what they may do with --remote view, or --remote operate and --hosts NAME, or listen on 127.0.0.1",
			f.listen)
	}
	return nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func (f *webFlags) serve(s *session) error {
	s.lasting = true
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	listener, err := (&net.ListenConfig{}).Listen(s.signals.stop, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; name another address with --listen", f.listen, err)
	}
	server := &http.Server{Handler: f.handler(s, client), ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:  15 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := s.emit(map[string]any{"url": "http://" + listener.Addr().String() + "/"}); err == nil {
		select {
		case err = <-served:
			return err
		case <-s.signals.stop.Done():
		}
	}
	ending, cancel := context.WithTimeout(s.signals.hard, web.Timeout)
	defer cancel()
	if server.Shutdown(ending) != nil { // a request has not ended in time, or at a second interrupt
		s.cut.Store(true)
	}
	return errInterrupted
}

func (f *webFlags) handler(s *session, client redis.UniversalClient) http.Handler {
	opts := &web.Options{
		Prefix: s.prefix, Write: f.write,
		OnAction: func(r *http.Request, a web.Action) {
			outcome := fmt.Sprintf("%d changed", a.Done)
			switch {
			case a.Err != nil && a.Done > 0:
				outcome += ", then " + oneLine(a.Err)
			case a.Err != nil:
				outcome = oneLine(a.Err)
			}
			s.note("luatomic: %s of %q from %s: %s", a.Verb, a.Target, r.RemoteAddr, outcome)
		},
		OnError: func(id string, err error) { s.note("luatomic: %s: %s", id, oneLine(err)) },
	}
	if f.hosts != "" {
		opts.Hosts = strings.Split(f.hosts, ",")
	}
	if f.remote != "" {
		opts.Authorize = func(r *http.Request) web.Role {
			if web.IsLocal(r) {
				return web.Operator
			}
			return remoteRoles[f.remote]
		}
	}
	return web.Handler(client, opts)
}
