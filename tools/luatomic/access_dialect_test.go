package main

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// A dialect's work passes as the user that acl prints for it, nothing of it is refused, and other keys are.
func TestACLOfDialects(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin := server.Client()
	for _, dialect := range []string{"sidekiq7", "redisinaction", "plain"} {
		require.NoError(t, admin.ACLLogReset(t.Context()).Err())
		o := (&env{t: t, prefix: "ns:"}).run("acl", "--dialect", dialect).exits(exitDone).object()
		args := append([]any{"ACL", "SETUSER", "app", "reset", "on", ">pw"}, o["rules"].([]any)...)
		require.NoError(t, admin.Do(t.Context(), args...).Err())
		e := &env{t: t, url: strings.Replace(server.URL(), "redis://", "redis://app:pw@", 1), prefix: "ns:"}
		var other *cli
		switch dialect {
		case "sidekiq7":
			e.sidekiqWork(admin, dialect)
			other = (&env{t: t, url: e.url, prefix: "other:"}).run("stats", "--dialect", dialect)
		case "redisinaction":
			e.with(`{"name":"mail","args":["ann"]}`+"\n").run("push", "q", "--dialect", dialect).exits(exitDone)
			e.run("promote", "--dialect", dialect).exits(exitDone)
			fallthrough
		case "plain":
			e.run("lock", "x", "--dialect", dialect, "--", "true").exits(exitDone)
			other = (&env{t: t, url: e.url, prefix: "other:"}).run("lock", "x", "--dialect", dialect, "--", "true")
		}
		other.exits(exitFailed)
		for _, refused := range admin.ACLLog(t.Context(), 100).Val() {
			require.Equal(t, "key", refused.Reason, "%s: %s", dialect, refused.Object)
		}
	}
}

// sidekiqWork is the work of each command that the dialect has.
func (e *env) sidekiqWork(admin *redis.Client, dialect string) {
	e.t.Helper()
	later := `{"class":"MailJob","jid":"later","args":[],"delay":"1h"}`
	e.with(`{"class":"MailJob","args":["ann"]}`+"\n"+later+"\n").run("push", "q", "--dialect", dialect).exits(exitDone)
	e.run("promote", "--dialect", dialect).exits(exitDone)
	e.run("queues", "ls", "--dialect", dialect).exits(exitDone)
	e.run("jobs", "ls", "q", "--dialect", dialect).exits(exitDone)
	worker := e.start("consume", "q", "--dialect", dialect, "--", "true")
	luatomictest.Eventually(e.t, within, "the job is done", func() bool {
		return admin.Get(e.t.Context(), "ns:stat:processed").Val() == "1"
	})
	worker.signal(os.Interrupt)
	worker.wait()
	require.Empty(e.t, admin.SMembers(e.t.Context(), "ns:processes").Val(), "it has left the Busy page")
	e.run("stats", "--dialect", dialect).exits(exitDone)
}

// With --audit the user may look for the namespace of a Sidekiq.
func TestACLOfDialectsForAnAudit(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	o := (&env{t: t, prefix: "ns:"}).run("acl", "--dialect", "sidekiq7", "--audit").exits(exitDone).object()
	args := append([]any{"ACL", "SETUSER", "app", "reset", "on", ">pw"}, o["rules"].([]any)...)
	require.NoError(t, server.Client().Do(t.Context(), args...).Err())
	e := &env{t: t, url: strings.Replace(server.URL(), "redis://", "redis://app:pw@", 1), prefix: "ns:"}
	require.NotContains(t, e.run("doctor", "--dialect", "sidekiq7").stderr.String(), "NOPERM")
}
