package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// first waits for an object on stdout that has the field, and returns it.
func (c *cli) first(field string) (found map[string]any) {
	c.t.Helper()
	luatomictest.Eventually(c.t, within, "stdout shows "+field, func() bool {
		for line := range strings.Lines(c.stdout.String()) {
			var o map[string]any
			if json.Unmarshal([]byte(line), &o) == nil && o[field] != nil {
				found = o
				return true
			}
		}
		return false
	})
	return found
}

// fetched is the body of a page that must be there.
func fetched(t *testing.T, address string) string {
	t.Helper()
	r, err := http.Get(address) //nolint:gosec // it is this test's own page
	require.NoError(t, err)
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s: %s", address, body)
	return string(body)
}

// The page beside a demo that holds shows its jobs, locks and calls, changes nothing without --write, and says what it
// changed with it.
func TestWebBesideADemoThatHolds(t *testing.T) {
	t.Parallel()
	e := shared(t)
	demo := e.start("demo", "--hold")
	e.prefix = demo.first("prefix")["prefix"].(string)
	reading := e.start("web", "--listen", "127.0.0.1:0")
	base := reading.first("url")["url"].(string)
	for page, shows := range map[string]string{"": "reports", "queue?name=mail": "newsletter",
		"locks":                "host-a, pid 4711",
		"locks?kind=semaphore": "partner-api", "locks?kind=rw": "catalogue", "rpc": "stock.get", "server": "eviction"} {
		if page == "queue?name=mail" {
			page += "&state=scheduled"
		}
		luatomictest.Eventually(t, within, page+" shows "+shows, func() bool {
			return strings.Contains(fetched(t, base+page), shows)
		})
	}
	pause := url.Values{"verb": {"pause"}}
	refused, err := http.PostForm(base+"queue/settings?name=mail", pause)
	require.NoError(t, err)
	require.NoError(t, refused.Body.Close())
	require.Equal(t, http.StatusForbidden, refused.StatusCode)

	writing := e.start("web", "--listen", "127.0.0.1:0", "--write")
	done, err := http.PostForm(writing.first("url")["url"].(string)+"queue/settings?name=mail", pause)
	require.NoError(t, err)
	require.NoError(t, done.Body.Close())
	require.Equal(t, http.StatusOK, done.StatusCode)
	require.True(t, e.stats("mail").Paused)
	writing.shows(`luatomic: pause of "queue mail" from 127.0.0.1`)

	for _, c := range []*cli{reading, writing} {
		c.signal(os.Interrupt)
		c.exits(exitInterrupted)
	}
	demo.signal(os.Interrupt)
	demo.exits(exitDone)
}

// The line of a change that failed says how much of it was made.
func TestWebTellsWhatAFailedChangeHasMade(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.push("mail", queue.Job{ID: "held", Unique: "a"}, queue.Job{ID: "free"})
	e.run("jobs", "bury", "mail", "held", "free").exits(exitDone)
	e.push("mail", queue.Job{ID: "holder", Unique: "a"})
	page := e.start("web", "--listen", "127.0.0.1:0", "--write")
	answer, err := http.PostForm(page.first("url")["url"].(string)+"jobs?name=mail",
		url.Values{"all": {"requeue"}, "state": {"dead"}, "confirm": {"2"}})
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusConflict, answer.StatusCode)
	page.shows(`: 1 changed, then `)
}

// With --remote the rights of the operator stay those of this machine: a visitor behind a proxy here, or under the name
// of another site, has the role of other machines.
func TestWebRemoteIsForAllButThisMachine(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.known("mail")
	base := e.start("web", "--listen", "127.0.0.1:0", "--write", "--remote", "view").first("url")["url"].(string)
	ask := func(method, page string, change func(*http.Request)) int {
		r, err := http.NewRequestWithContext(t.Context(), method, base+page, strings.NewReader("verb=pause"))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		change(r)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	for name, change := range map[string]func(*http.Request){
		"through a proxy": func(r *http.Request) { r.Header.Set("X-Forwarded-For", "203.0.113.9") },
		"an empty header": func(r *http.Request) { r.Header.Set("X-Forwarded-For", "") },
		"another proxy":   func(r *http.Request) { r.Header.Set("Via", "1.1 front") },
		"a proxy's host":  func(r *http.Request) { r.Header.Set("X-Forwarded-Host", "page.example") },
		"another name": func(r *http.Request) {
			r.Host = "evil.example"
			r.Header.Set("Origin", "http://evil.example")
		},
	} {
		require.Equal(t, http.StatusForbidden, ask(http.MethodPost, "queue/settings.json?name=mail", change), name)
		require.Equal(t, http.StatusOK, ask(http.MethodGet, "queue.json?name=mail", change), name)
	}
	require.False(t, e.stats("mail").Paused)
	require.Equal(t, http.StatusOK, ask(http.MethodPost, "queue/settings.json?name=mail", func(*http.Request) {}))
	require.True(t, e.stats("mail").Paused)
}

// The names of --hosts are those that a person writes: in any case, with spaces.
func TestWebHosts(t *testing.T) {
	t.Parallel()
	e := shared(t)
	base := e.start("web", "--listen", "127.0.0.1:0", "--hosts",
		"Page.Example, localhost ").first("url")["url"].(string)
	for host, want := range map[string]int{
		"page.example": http.StatusOK, "PAGE.example:8080": http.StatusOK, "localhost": http.StatusOK,
		"other.example": http.StatusForbidden,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base, nil)
		require.NoError(t, err)
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, answer.StatusCode, host)
	}
}

func TestWebRefusesOtherMachinesUnlessTold(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, "open to other machines"},
		{[]string{"--listen", ":0"}, "open to other machines"},
		{[]string{"--listen", "8080"}, "write HOST:PORT"}, {[]string{"--remote", "all"}, "write view or operate"},
		{[]string{"--hosts", "page.example,"}, "has an empty name"}, {[]string{"--hosts", " "}, "has an empty name"},
		{[]string{"--hosts", "https://page.example/"}, "is no name of a host"},
		{[]string{"--remote", "operate"}, "without --write"},
		{[]string{"--remote", "operate", "--write"}, "name them with --hosts NAME"},
		{[]string{"--remote", "operate", "--write", "--listen", "0.0.0.0:0"}, "name them with --hosts NAME"},
		{[]string{"now"}, "takes no arguments"},
	} {
		c := e.run(append([]string{"web"}, tc.args...)...).exits(exitUsage)
		require.Contains(t, c.stderr.String(), tc.says)
	}
	taken := e.start("web", "--listen", "127.0.0.1:0")
	address := strings.Trim(strings.TrimPrefix(taken.first("url")["url"].(string), "http://"), "/")
	c := e.run("web", "--listen", address).exits(exitFailed)
	require.Contains(t, c.stderr.String(), "name another address with --listen")
}
