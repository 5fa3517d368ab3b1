package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

//go:embed programs/sidekiq.rb programs/bullmq.js
var programs embed.FS

// program is a peer in another language, which runs where its runtime is found.
type program struct {
	name, file, runtime string
	version             []string // prints the peer's version, or fails
}

var outside = []program{
	{"Sidekiq", "programs/sidekiq.rb", "ruby", []string{"-e", `require "sidekiq"; puts Sidekiq::VERSION`}},
	{"BullMQ", "programs/bullmq.js", "node",
		[]string{"-e", `require('ioredis'); console.log(require('bullmq/package.json').version)`}},
}

// pushPrograms are the entrants of a batch push that are no Go: those that are absent are noted with the reason.
func pushPrograms(_ *bench, r *result, n int) []entrant {
	var found []entrant
	for _, p := range outside {
		version, err := p.find()
		if err != nil {
			r.Absent[p.name] = err.Error()
			continue
		}
		r.Peers[p.name] = version
		found = append(found, entrant{p.name, peer, "its own runtime; no answer to a repeat", p.push(n)})
	}
	r.Absent["ActionHero"] = "its rates are measured beside its dialect only: make interop"
	return found
}

func (p *program) find() (version string, err error) {
	if _, err := exec.LookPath(p.runtime); err != nil {
		return "", fmt.Errorf("no %s on PATH", p.runtime)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.runtime, p.version...).Output()
	if err != nil {
		return "", fmt.Errorf("%s does not find it", p.runtime)
	}
	return strings.TrimSpace(string(out)), nil
}

// push starts the program, which stays: it reads the seconds of a slot from a line, and answers with its rate.
func (p *program) push(n int) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		text, err := programs.ReadFile(p.file)
		if err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			return nil, err
		}
		b.close(func() { _ = os.RemoveAll(dir) })
		file := dir + "/" + p.file[strings.LastIndex(p.file, "/")+1:]
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(b.ctx, p.runtime, file)
		cmd.Env = append(os.Environ(), "REDIS_URL="+b.url, "SPACE="+b.space, "BATCH="+strconv.Itoa(n))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		b.close(func() {
			_ = in.Close() // the end of its input is its end
			_ = cmd.Wait()
		})
		return func(span time.Duration) (metrics, error) {
			var rate float64
			_, asked := fmt.Fprintf(in, "%.6f\n", span.Seconds())
			_, answered := fmt.Fscan(out, &rate)
			return metrics{"per_s": rate}, errors.Join(asked, answered)
		}, nil
	}
}
