package web_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// A change that ends in a fault says how many jobs it had changed, whether the server hangs or is gone.
func TestAFaultSaysWhatWasChangedBefore(t *testing.T) {
	t.Parallel()
	for what, form := range map[string]url.Values{
		"all":      {"all": {"cancel"}, "confirm": {"600"}},
		"selected": {"verb": {"reschedule"}, "id": {"job-0000", "job-0001"}, "confirm": {"2"}, "in": {"48h"}},
	} {
		form.Set("state", "scheduled")
		for how, ends := range map[string]func(*testing.T, *luatomictest.Server){
			"is gone": func(_ *testing.T, server *luatomictest.Server) { server.Kill() },
			"hangs": func(t *testing.T, server *luatomictest.Server) {
				server.Pause()
				t.Cleanup(server.Resume)
			},
		} {
			for _, format := range []string{"", ".json"} {
				t.Run(what+" "+how+format, func(t *testing.T) {
					t.Parallel()
					s := siteThatEnds(t, ends)
					answer := s.do(http.MethodPost, "/jobs"+format+"?name=mail", form)
					require.Equal(t, http.StatusServiceUnavailable, answer.code, answer.body)
					if format == "" {
						require.Regexp(t, `<p>(200 jobs|1 job) had been changed before that`, answer.body)
						return
					}
					var fault struct{ Done int }
					require.NoError(t, json.Unmarshal([]byte(answer.body), &fault))
					require.Equal(t, map[string]int{"all": 200, "selected": 1}[what], fault.Done, answer.body)
				})
			}
		}
	}
}

// siteThatEnds is a page of 600 scheduled jobs on a server that ends when the first of them has been changed.
func siteThatEnds(t *testing.T, ends func(*testing.T, *luatomictest.Server)) *site {
	t.Helper()
	server := luatomictest.StartServer(t)
	s := newSiteOn(t, server.Client(), web.Options{})
	q, now := s.queue("mail"), time.Now()
	s.push(q, 600, queue.Job{At: now.Add(time.Hour)})
	s.when(func() bool {
		first, err := q.Find(context.Background(), "job-0000")
		return err == nil && (first[0].State == queue.Absent || first[0].At.After(now.Add(2*time.Hour)))
	}, func() { ends(t, server) })
	return s
}

// when lets the page do something once, right after the command after which the condition holds.
func (s *site) when(holds func() bool, do func()) {
	s.t.Helper()
	client := redis.NewClient(s.client.(*redis.Client).Options())
	s.t.Cleanup(func() { _ = client.Close() })
	var once sync.Once
	client.AddHook(beside(func() {
		if holds() {
			once.Do(do)
		}
	}))
	s.handler = web.Handler(client, &web.Options{Prefix: s.prefix, Write: true})
}

// A change of a setting that is made is a success, although the server hangs right after it.
func TestASettingThatIsMadeIsNoFault(t *testing.T) {
	t.Parallel()
	type settings struct {
		Verb, Queue string
		Paused      bool
		Limit       int
	}
	for verb, want := range map[string]settings{
		"pause": {"pause", "mail", true, 7}, "resume": {"resume", "mail", false, 7},
		"limit": {"limit", "mail", false, 9},
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			s := newSiteOn(t, server.Client(), web.Options{})
			q := s.queue("mail")
			require.NoError(t, q.SetLimit(t.Context(), 7))
			if verb == "resume" {
				require.NoError(t, q.Pause(t.Context()))
			}
			before := s.stats(q)
			s.when(func() bool {
				st, err := q.Stats(context.Background())
				return err == nil && (st.Paused != before.Paused || st.Limit != before.Limit)
			}, func() {
				server.Pause()
				t.Cleanup(server.Resume)
			})
			var got settings
			s.post("/queue/settings.json?name=mail", url.Values{"verb": {verb}, "limit": {"9"}}, &got)
			require.Equal(t, want, got)
		})
	}
}
