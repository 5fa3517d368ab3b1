package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// A dialect's work passes as the user that acl prints for it, under each form of a prefix and with each flag; nothing
// of it is refused, and other keys are.
func TestACLOfDialects(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin := server.Client()
	for dialect, prefixes := range map[string][]string{
		"sidekiq7": {"ns:", ""}, "redisinaction": {"ns:", ""}, "plain": {"ns:", "ns", "n*s:", ""},
	} {
		for _, prefix := range prefixes {
			require.NoError(t, admin.FlushAll(t.Context()).Err())
			require.NoError(t, admin.ACLLogReset(t.Context()).Err())
			e := asDialect(t, server, dialect, prefix)
			e.dialectWork(admin, dialect)
			for _, refused := range admin.ACLLog(t.Context(), 100).Val() {
				require.Fail(t, "it lacks a right", "%s, prefix %q: %s %s", dialect, prefix, refused.Reason,
					refused.Object)
			}
			if prefix == "" {
				continue
			}
			other := &env{t: t, url: e.url, prefix: "other:"}
			if dialect == "sidekiq7" {
				other.run("stats", "--dialect", dialect).exits(exitFailed)
			} else {
				other.run("lock", "x", "--dialect", dialect, "--", "true").exits(exitFailed)
			}
		}
	}
}

// asDialect is an environment of the user that acl prints for a dialect and a prefix.
func asDialect(t *testing.T, server *luatomictest.Server, dialect, prefix string) *env {
	t.Helper()
	o := (&env{t: t, prefix: prefix}).run("acl", "--dialect", dialect).exits(exitDone).object()
	args := append([]any{"ACL", "SETUSER", "app", "reset", "on", ">pw"}, o["rules"].([]any)...)
	require.NoError(t, server.Client().Do(t.Context(), args...).Err())
	return &env{t: t, url: strings.Replace(server.URL(), "redis://", "redis://app:pw@", 1), prefix: prefix}
}

// dialectWork is the work of each command that the dialect has.
func (e *env) dialectWork(admin *redis.Client, dialect string) {
	e.t.Helper()
	switch dialect {
	case "sidekiq7":
		e.sidekiqWork(admin, dialect)
		return
	case "redisinaction":
		e.with(`{"name":"mail","args":["ann"]}`+"\n").run("push", "q", "--dialect", dialect).exits(exitDone)
		e.run("promote", "--dialect", dialect).exits(exitDone)
		e.run("lock", "x", "--dialect", dialect, "--", "true").exits(exitDone)
		return
	}
	e.run("lock", "x", "--dialect", dialect, "--", "true").exits(exitDone)
	e.run("lock", "x", "--dialect", dialect, "--fence", "--", "true").exits(exitDone)
	e.run("lock", "{x}", "--dialect", dialect, "--fence", "--", "true").exits(exitDone)
	held := e.prefix + "x"
	require.NoError(e.t, admin.Set(e.t.Context(), held, "another", 500*time.Millisecond).Err())
	e.run("lock", "x", "--dialect", dialect, "--wait", "30s", "--", "true").exits(exitDone)
}

// A prefix without its colon would give rights on the keys of another namespace: those of app on those of app2.
func TestACLOfDialectsRefusesHalfAPrefix(t *testing.T) {
	t.Parallel()
	for _, dialect := range append(slices.Clone(sidekiqs), redisInAction) {
		c := (&env{t: t, prefix: "app"}).run("acl", "--dialect", dialect).exits(exitUsage)
		require.Contains(t, c.stderr.String(), "write --prefix app:")
	}
	rules := (&env{t: t, prefix: "app:"}).run("acl", "--dialect", plain).exits(exitDone).object()["rules"]
	require.Contains(t, rules, "&luatomic:released:app:*")
	require.NotContains(t, rules, "&luatomic:released:*")
}

// sidekiqWork is the work of each command that the dialect has.
func (e *env) sidekiqWork(admin *redis.Client, dialect string) {
	e.t.Helper()
	later := `{"class":"MailJob","jid":"later","args":[],"delay":"1h"}`
	e.with(`{"class":"MailJob","args":["ann"]}`+"\n"+later+"\n").run("push", "q", "--dialect", dialect).exits(exitDone)
	e.run("promote", "--dialect", dialect).exits(exitDone)
	e.run("queues", "ls", "--dialect", dialect).exits(exitDone)
	e.run("jobs", "ls", "q", "--dialect", dialect).exits(exitDone)
	e.deadWorker(admin)
	worker := e.start("consume", "q", "--dialect", dialect, "--", "true")
	luatomictest.Eventually(e.t, within, "the jobs are done, and one is set aside", func() bool {
		return admin.Get(e.t.Context(), e.prefix+"stat:processed").Val() == "3"
	})
	require.EqualValues(e.t, 1, admin.ZCard(e.t.Context(), e.prefix+"retry").Val())
	worker.signal(os.Interrupt)
	worker.wait()
	require.Empty(e.t, admin.SMembers(e.t.Context(), e.prefix+"processes").Val(), "it has left the Busy page")
	e.run("stats", "--dialect", dialect).exits(exitDone)
}

// deadWorker leaves the jobs of a worker that died, one of them not for the first time.
func (e *env) deadWorker(admin *redis.Client) {
	e.t.Helper()
	ours, queue := e.prefix+"luatomic:sidekiq:", e.prefix+"queue:q"
	entry := func(jid string) string {
		return strconv.Itoa(len(queue)) + ":" + queue + `{"class":"MailJob","args":[],"jid":"` + jid + `"}`
	}
	ctx := e.t.Context()
	require.NoError(e.t, admin.HSet(ctx, ours+"working:dead", "1", entry("new"), "2", entry("again")).Err())
	require.NoError(e.t, admin.HSet(ctx, ours+"rescued", "again", 1).Err())
	require.NoError(e.t, admin.ZAdd(ctx, ours+"processes", redis.Z{Member: "dead", Score: 1}).Err())
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
