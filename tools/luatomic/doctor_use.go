package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/lua"
)

// useWithin bounds each thing that doctor tries. It changes in tests alone, as reachWithin does.
var useWithin = 3 * time.Second

// probeUse tries the package out, under a name of its own.
type probeUse struct {
	client redis.UniversalClient
	prefix string
	name   string
	roles  []luatomic.Role // nil: all but RolePage
}

// does reports whether a program of the roles is one of these.
func (p *probeUse) does(any ...luatomic.Role) bool {
	return slices.ContainsFunc(any, func(r luatomic.Role) bool {
		return len(p.roles) == 0 && r != luatomic.RolePage || slices.Contains(p.roles, r)
	})
}

// use is one thing that doctor tries.
type use struct {
	check string
	try   func(context.Context) (string, error)
}

// uses are what programs of the roles do.
func (p *probeUse) uses() (all []use) {
	if p.does(luatomic.RoleLock) {
		all = append(all, use{"channels", p.channels}, use{"lock", p.lock})
	}
	if p.does(luatomic.RoleLimit) {
		all = append(all, use{"limit", p.limit})
	}
	if p.does(luatomic.RoleProducer, luatomic.RoleConsumer) {
		all = append(all, use{"queue", p.queue})
	}
	if p.does(luatomic.RoleCaller, luatomic.RoleNode) {
		all = append(all, use{"rpc", p.rpc})
	}
	if p.does(luatomic.RolePage) {
		all = append(all, use{"page", p.page})
	}
	return all
}

// examineUse does what programs do.
func examineUse(s *session, client redis.UniversalClient, roles []luatomic.Role, report func(checkResult) error) error {
	p := probeUse{client: client, prefix: s.prefix, name: "doctor-" + strings.ToLower(rand.Text()[:8]), roles: roles}
	for _, u := range append([]use{{"scripts", p.scripts}}, p.uses()...) {
		ctx, cancel := context.WithTimeout(s.signals.stop, useWithin)
		detail, err := u.try(ctx)
		cancel()
		if s.signals.stop.Err() != nil {
			return errInterrupted
		}
		ok := err == nil
		r := checkResult{Check: u.check, OK: &ok, Detail: detail}
		if err != nil {
			cure := p.cure(err)
			r.Detail, r.Cure = oneLine(err), &cure
		}
		if err := report(r); err != nil {
			return err
		}
	}
	if !p.readsQueues() {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.signals.stop, useWithin)
	defer cancel()
	for _, examine := range []func(context.Context) checkResult{p.examineQueues, p.examineIDs} {
		if err := report(examine(ctx)); err != nil {
			return err
		}
	}
	return report(p.examineData(ctx))
}

// cure is what to do about a failure of what doctor tried.
func (p *probeUse) cure(err error) string {
	text := err.Error()
	switch {
	case !lacksRights(text), errors.Is(err, lua.ErrNotLoaded), searches.MatchString(text) && !p.does(luatomic.RolePage):
		return cmp.Or(cureOf(err), cutCure(text), "repair what failed before this, then read the server's log")
	case len(p.roles) > 0:
		return "give this user the rights that luatomic acl prints for the same --prefix and --role"
	}
	return "give this user the rights that luatomic acl prints for the same --prefix; " +
		"a user of one --role fails the checks of what other roles do, and that is no fault: name it with --role"
}

// cutCure is what to do about a server that ends a connection while it serves another.
func cutCure(text string) string {
	if !isCut(text) {
		return ""
	}
	return "the server ended a new connection: if INFO clients shows as many as its maxclients, " + tooManyClients +
		"; else read its log"
}

// scripts loads them. A user that may not can still run them if they are loaded, or by
// EVAL: what its programs do shows it.
func (p *probeUse) scripts(ctx context.Context) (string, error) {
	err := lua.Preload(ctx, p.client, luatomic.Scripts()...)
	if err == nil {
		return fmt.Sprintf("loaded: %d", countScripts(luatomic.Scripts())), nil
	}
	if !strings.Contains(err.Error(), "NOPERM") {
		return "", err
	}
	trial := *p
	trial.name += "-s" // a queue takes the id of a job once
	uses := trial.uses()
	if p.does(luatomic.RoleLock) {
		uses = uses[1:] // no script is of the channels
	}
	if _, runs := uses[0].try(ctx); runs != nil {
		return "", errors.Join(errors.New("SCRIPT LOAD is refused, and the scripts are not loaded"), runs)
	}
	return "SCRIPT LOAD is refused; the scripts are loaded already, or run by EVAL", nil
}

// page reads what the page and luatomic top read.
func (p *probeUse) page(ctx context.Context) (string, error) {
	start := time.Now()
	r := newTopReader(p.client, p.prefix)
	r.read(ctx)
	v := r.view
	err := errors.Join(v.away, v.queues.err, v.running.err, v.locks.err, v.nodes.err)
	if err != nil {
		return "", err
	}
	return "read queues, jobs, locks and nodes in " + took(start), nil
}
