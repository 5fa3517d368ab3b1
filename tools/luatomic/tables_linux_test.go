package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// Words of a table that another run has otherwise.
const (
	someTime  = `\d\S*`
	someAge   = `\d\S* ago`
	someFence = `\d{16}`
	someToken = `[A-Z2-7]{16}\.\d+(:\d+)?`
)

// looks runs a command on a terminal and compares its lines, of which each word is an expression.
func (e *env) looks(code int, args string, lines ...string) {
	e.t.Helper()
	p := e.onTerminal(200, 50, strings.Fields(args)...)
	p.ends(code)
	shown := p.picture.String()
	got := strings.Split(strings.TrimSuffix(shown, "\n"), "\n")
	require.Len(e.t, got, len(lines), "%s:\n%s", args, shown)
	for i, line := range lines {
		words := regexp.MustCompile(` +`).ReplaceAllString(line, " +")
		require.Regexp(e.t, "^ *"+words+"$", got[i], "%s:\n%s", args, shown)
	}
}

// Where there is nothing to list, a terminal gets a sentence in place of the head of a table.
func TestEmptyTables(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.looks(exitDone, "locks ls", "luatomic: no lock is held or waited for")
	e.looks(exitDone, "locks ls --kind rw", "luatomic: no lock is held or waited for")
	e.looks(exitDone, "queues workers", "luatomic: no process consumes")
}

// What each command that lists things shows on a terminal.
func TestTablesOfTheCommands(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e := &env{t: t, url: server.URL(), prefix: "app:"}
	furnished(t, server, e.prefix)
	e.looks(exitDone, "stats mail",
		"QUEUE READY SCHEDULED LEASED LAPSED DEAD OLDEST PAUSED CONSUMERS",
		"mail 1 1 1 0 1 "+someAge+" false 1")
	e.looks(exitDone, "queues ls",
		"QUEUE TAG READY SCHEDULED LEASED LAPSED DEAD OLDEST PAUSED PROCESSED FAILED CONSUMERS",
		"mail 1 1 1 0 1 "+someAge+" false 0 0 1")
	e.looks(exitDone, "queues workers",
		"HOST PID VERSION STARTED REPORTED QUEUE TAG HOLDS OF LONGEST",
		`\S+ \d+ \S+ `+someAge+" "+someAge+" mail 1 1 held "+someAge)
	e.looks(exitDone, "jobs ls mail",
		"ID STATE AT FAILURES KIND REASON",
		"ready ready "+someAge+" 0",
		"scheduled scheduled in "+someTime+" 0",
		"held leased in "+someTime+" 0",
		"dead dead "+someAge+" 1 smtp: 550")
	e.looks(exitDone, "jobs show mail dead",
		"id dead", "state dead", `at \S+, `+someAge, "failures 1", "reason smtp: 550", "header trace: 1",
		"body 12 bytes",
		`\{"to":"ann"\}`)
	e.looks(exitDone, "locks ls",
		"NAME HOLDER FENCE LEFT WAITING",
		"nightly the test "+someFence+" "+someTime+" 0")
	e.looks(exitDone, "locks show free",
		"NAME HOLDER FENCE LEFT WAITING",
		"free free 0 0s 0")
	for kind, show := range map[string]struct{ line, part, value string }{
		"rw":        {"report writing", "AS", "writer"},
		"semaphore": {"partner 1 of 2", "WEIGHT", "1"},
	} {
		name, _, _ := strings.Cut(show.line, " ")
		for _, verb := range []string{"locks ls", "locks show " + name} {
			e.looks(exitDone, verb+" --kind "+kind,
				"NAME USED WAITING TOKEN "+show.part+" HOLDER LEFT",
				show.line+" 0 "+someToken+" "+show.value+" the test "+someTime)
		}
	}
	e.looks(exitDone, "rpc nodes",
		"NODE METHODS RUNNING HANDLED CALLS LEASE",
		`web-1\.\S+ text\.upper 0 of 8 0 0 `+someTime)
	e.looks(exitDone, "rpc top",
		"METHOD NODE RUNNING HANDLED FAILED PER SECOND MEAN MS VERSION",
		`text\.upper web-1\.\S+ 0 0 0 - -`)
	e.looks(exitDone, "queue pause mail", `\{"limit":null,"paused":true,"queue":"mail"\}`)
	e.looks(exitDone, "jobs requeue mail dead", `\{"queue":"mail","requeued":1\}`)
}

// The tables and cards of Sidekiq's jobs and queues, and the checks of doctor with their cures.
func TestTablesOfSidekiqAndDoctor(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e := &env{t: t, url: server.URL(), prefix: "app:"}
	e.with(`{"class":"Mail","args":["ann"],"queue":"a","jid":"one"}`).run("push", "a", ofSidekiq).exits(exitDone)
	e.looks(exitDone, "stats "+ofSidekiq,
		"PROCESSED FAILED SCHEDULED RETRIES DEAD PROCESSES", "0 0 0 0 0 0",
		"QUEUE READY LATENCY", "a 1 "+someTime)
	e.looks(exitDone, "queues ls "+ofSidekiq, "QUEUE READY LATENCY", "a 1 "+someTime)
	e.looks(exitDone, "jobs ls a "+ofSidekiq, "ID STATE AT FAILURES KIND REASON", "one ready "+someAge+" 0 Mail")
	e.looks(exitDone, "jobs show a one "+ofSidekiq,
		"id one", "state ready", `at \S+, `+someAge, "kind Mail", "failures 0", `body \d+ bytes`, `\{.*"jid":"one".*\}`)

	p := e.onTerminal(200, 50, "doctor")
	p.ends(exitFailed)
	require.Regexp(t, `(?m)^ok    version       (Redis|Valkey) \S+ \(127\.0\.0\.1:\d+\)$`, p.picture)
	require.Regexp(t,
		`(?m)^FAIL  persistence   appendonly and snapshots are off: .*\n {20}cure: CONFIG SET appendonly yes`,
		p.picture)
	require.Regexp(t, `(?m)^ok    lock          acquired, extended and released in \S+$`, p.picture)
	require.Regexp(t, `(?m)^luatomic: checks failed: 1; the line of each has its cure$`, p.picture)
}
