package main

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/luatomictest"
)

// An age on a terminal is by the server's clock, whatever the clock of the operator's machine says.
func TestAgesAreByTheServersClock(t *testing.T) {
	t.Parallel()
	server, err := launch.StartEmbedded()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	server.Step(1000 * time.Hour)
	e := &env{t: t, url: "redis://" + server.Addr(), prefix: "app:"}
	e.with(`{"body":1,"id":"held"}`).run("push", "mail").exits(exitDone)
	script, file := untilFile(t)
	consumer := e.start("consume", "mail", "--", "sh", "-c", script)
	consumer.shows("started")
	luatomictest.Eventually(t, within, "the consumer is listed with its job", func() bool {
		return strings.Contains(e.run("queues", "workers").exits(exitDone).stdout.String(), `"id":"held"`)
	})
	const recent = `\d+(\.\d+)?m?s ago`
	e.looks(exitDone, "queues workers",
		"HOST PID VERSION STARTED REPORTED QUEUE TAG HOLDS OF LONGEST",
		`\S+ \d+ \S+ `+someAge+" "+recent+" mail 1 1 held "+recent)
	e.with(`{"body":1,"id":"late","delay":"100h"}`).run("push", "mail").exits(exitDone)
	e.looks(exitDone, "jobs show mail late",
		"id late", "state scheduled", `at \S+, in (100h|99h).*`, "failures 0", "body 1 bytes", "1")
	p := e.onTerminal(110, 30, "top", "--every", "100ms")
	luatomictest.Eventually(t, within, "top shows how long the job runs", func() bool {
		return regexp.MustCompile(`held +mail +` + recent).MatchString(p.picture.String())
	})
	p.types("q")
	p.ends(exitDone)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	consumer.signal(syscall.SIGTERM)
	consumer.exits(exitDone)
}
