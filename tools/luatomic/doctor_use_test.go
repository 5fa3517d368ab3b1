package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// With its roles named, a user of them passes what doctor tries, and one right less is found.
func TestDoctorOfNamedRoles(t *testing.T) {
	t.Parallel()
	for roles, tries := range map[string][]string{
		"producer":          {"scripts", "queue", "queues", "ids", "data"},
		"consumer":          {"scripts", "queue", "queues", "ids", "data"},
		"producer,consumer": {"scripts", "queue", "queues", "ids", "data"},
		"lock":              {"scripts", "channels", "lock"}, "caller": {"scripts", "rpc"}, "node": {"scripts", "rpc"},
		"limit": {"scripts", "limit"},
		"page":  {"scripts", "page", "queues", "ids", "data"}, "lock,node": {"scripts", "channels", "lock", "rpc"},
	} {
		t.Run(roles, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			examined := func(less []string, flags ...string) (tried, failed []string) {
				e := asApp(t, server, less, append(flags, "--role", roles)...)
				for _, o := range e.run("doctor", "--role", roles).exits(exitFailed).objects() {
					if _, setting := o["node"]; setting || o["check"] == "default user" {
						continue
					}
					tried = append(tried, o["check"].(string))
					if o["ok"] != true {
						failed = append(failed, o["check"].(string))
					}
				}
				return tried, failed
			}
			tried, failed := examined(nil)
			require.Equal(t, tries, tried)
			require.Empty(t, failed)
			leavesNothing(t, server, "my app:")
			_, failed = examined(nil, "--preloaded")
			require.Empty(t, failed)
			if !slices.Contains(tries, "rpc") { // that tries until its time is over
				_, failed = examined([]string{"resetkeys"})
				last := tries[len(tries)-1:]
				if slices.Contains(tries, "queues") {
					last = tries[len(tries)-4:]
				}
				require.Equal(t, last, failed)
			}
		})
	}
	for _, wrong := range []string{"--role x", "--role page,lock", "--role lock --dialect sidekiq7"} {
		(&env{t: t}).run(append([]string{"doctor"}, strings.Fields(wrong)...)...).exits(exitUsage)
	}
}
