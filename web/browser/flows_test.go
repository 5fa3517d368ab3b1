package browser_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// From the overview to a dead job, its reason and body, and back into the queue.
func TestDeadJobIsSeenAndRequeued(t *testing.T) {
	b := open(t, web.Options{Write: true})
	q := b.queue("mail")
	b.bury(q, "smtp: 421 try later", queue.Job{ID: "welcome-7", Body: []byte(`{"to":"ann"}`)},
		queue.Job{ID: "welcome-8"})
	require.Equal(t, http.StatusOK, b.visit("/"))
	b.follow(`a[href*="state=dead"]`)
	require.Contains(t, b.text(), "smtp: 421 try later")
	require.NotContains(t, b.text(), "ann")
	b.follow(`a[href*="id=welcome-7"]`)
	b.follow(`a[href*="body=text"]`)
	require.Contains(t, b.text(), `{"to":"ann"}`)
	require.Equal(t, http.StatusOK, b.follow(`button[value="requeue"]`))
	require.Contains(t, b.text(), "Requeue: 1 of 1 job")
	require.Equal(t, 1, b.stats(q).Ready)
	b.follow("#back")
	require.NotContains(t, b.text(), "welcome-7")
	require.Contains(t, b.text(), "welcome-8")
}

// Selected jobs: the number is shown on the way, and is that of the boxes.
func TestSelectedJobsAreDeletedAfterTheirNumberIsShown(t *testing.T) {
	b := open(t, web.Options{Write: true})
	q := b.queue("mail")
	b.bury(q, "x", queue.Job{ID: "a"}, queue.Job{ID: "b"}, queue.Job{ID: "c"})
	b.visit("/queue?name=mail")
	b.do(chromedp.Click(chromedp.CSS(`input[value="a"]`)), chromedp.Click(chromedp.CSS(`input[value="c"]`)))
	require.Contains(t, b.text(), "2 selected")
	b.follow(`button[name=verb][value="delete"]`)
	require.Contains(t, b.text(), "Delete 2 dead jobs of mail?")
	require.Equal(t, 3, b.stats(q).Dead)
	b.follow(`button[value="delete"]`)
	require.Equal(t, 1, b.stats(q).Dead)
	b.follow("#back")
	require.True(t, eval[bool](b, `document.querySelector('input[value="b"]') !== null`))
}

// A change is made over plain HTTP from another machine too. A browser sends no Sec-Fetch-Site there, and an Origin
// alone says that the form is of the page.
func TestQueueIsPausedOverPlainHTTP(t *testing.T) {
	b := open(t, web.Options{Write: true, Hosts: []string{elsewhere},
		Authorize: func(*http.Request) web.Role { return web.Operator }})
	b.url = strings.Replace(b.url, "127.0.0.1", elsewhere, 1)
	q := b.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{ID: "a"})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, b.visit("/queue?name=mail"))
	require.Equal(t, http.StatusOK, b.follow(`button[value="pause"]`), b.text())
	require.True(t, b.stats(q).Paused)
}

func TestQueueIsPaused(t *testing.T) {
	b := open(t, web.Options{Write: true})
	q := b.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{ID: "a"})
	require.NoError(t, err)
	b.visit("/queue?name=mail")
	b.follow(`button[value="pause"]`)
	require.True(t, b.stats(q).Paused)
	b.follow("#back")
	require.Contains(t, b.text(), "paused")
	b.follow(`button[value="resume"]`)
	require.False(t, b.stats(q).Paused)
}

// Enter in the field of the limit sets the limit: the first button of a form is what Enter presses.
func TestEnterInTheLimitSetsIt(t *testing.T) {
	b := open(t, web.Options{Write: true})
	q := b.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{ID: "a"})
	require.NoError(t, err)
	b.visit("/queue?name=mail")
	b.do(chromedp.Focus(chromedp.CSS(`input[name="limit"]`)), chromedp.KeyEvent("7"))
	_, err = chromedp.RunResponse(b.ctx, chromedp.KeyEvent(kb.Enter))
	require.NoError(t, err)
	require.False(t, b.stats(q).Paused)
	require.Contains(t, []int{7, 70}, b.stats(q).Limit, "behind or before the 0 that stands there")
}

// Enter on the box of a job sends nothing: nobody has pressed the button of a verb.
func TestEnterOnABoxChangesNothing(t *testing.T) {
	b := open(t, web.Options{Write: true})
	q := b.queue("mail")
	b.bury(q, "x", queue.Job{ID: "a"})
	b.visit("/queue?name=mail&state=dead")
	eval[bool](b, `(() => { window.sent = 0; addEventListener('submit', e => { sent += !e.defaultPrevented }); return true })()`)
	b.do(chromedp.Click(chromedp.CSS(`input[value="a"]`)), chromedp.Focus(chromedp.CSS(`input[value="a"]`)),
		chromedp.KeyEvent(kb.Enter))
	require.Zero(t, eval[int](b, `window.sent`), "no form is sent")
	require.Equal(t, 1, b.stats(q).Dead)
}

func TestLockIsReleased(t *testing.T) {
	b := open(t, web.Options{Write: true})
	lease := b.lock("nightly", "host-7")
	b.visit("/locks")
	require.Contains(t, b.text(), "host-7")
	require.Equal(t, http.StatusOK, b.follow(`.lock button`))
	require.Contains(t, b.text(), "was taken from its holder")
	require.Error(t, lease.Extend(t.Context()))
}

// A read-only page has no button, and a form that is sent to it all the same is refused.
func TestReadOnlyPageRefuses(t *testing.T) {
	b := open(t, web.Options{})
	q := b.queue("mail")
	b.bury(q, "x", queue.Job{ID: "a"})
	b.lock("nightly", "host-7")
	for _, path := range []string{"/", "/queue?name=mail", "/job?name=mail&id=a", "/locks"} {
		b.visit(path)
		require.Zero(t, eval[int](b, `document.querySelectorAll('form[method=post]').length`), path)
	}
	require.Contains(t, b.text(), "read-only")
	for _, target := range []string{"/jobs?name=mail", "/queue/settings?name=mail",
		"/locks/release?kind=lock&name=nightly"} {
		b.visit("/")
		// A form made by hand, sent by the browser itself from the page's own origin.
		response, err := chromedp.RunResponse(b.ctx, chromedp.Evaluate[chromedp.Void](
			`(() => { const f = document.createElement('form'); f.method = 'post'; f.action = '`+target+`';
			for (const [n, v] of [['verb', 'delete'], ['state', 'dead'], ['id', 'a'], ['confirm', '1']]) {
				const i = document.createElement('input'); i.name = n; i.value = v; f.append(i); }
			document.body.append(f); f.submit(); })()`))
		require.NoError(t, err)
		require.EqualValues(t, http.StatusForbidden, response.Status, target)
		require.Contains(t, b.text(), "This page is read-only")
	}
	require.Equal(t, 1, b.stats(q).Dead)
}

// A script in an id, a reason, a header, a body or a note is text.
func TestScriptInDataDoesNothing(t *testing.T) {
	b := open(t, web.Options{Write: true})
	evil := `"'><img src=x onerror="window.hit=1"><script>window.hit=1</script>`
	b.bury(b.queue("mail"), evil, queue.Job{ID: `<script>window.hit=1</script>`, Kind: evil, Body: []byte(evil),
		Headers: map[string]string{"h": evil}})
	b.lock("nightly", evil)
	for _, path := range []string{"/", "/queue?name=mail",
		"/queue?name=mail&text=%3Cscript%3Ewindow.hit%3D1%3C%2Fscript%3E",
		"/job?name=mail&body=text&id=%3Cscript%3Ewindow.hit%3D1%3C%2Fscript%3E", "/locks",
		"/queue?name=%3Cscript%3Ewindow.hit=1%3C/script%3E"} {
		b.visit(path)
		require.True(t, eval[bool](b, `window.hit === undefined`), path)
		require.Zero(t, eval[int](b, `document.querySelectorAll('img[src=x]').length`), path)
	}
	// Nor does one that gets into the page: the policy lets no inline script run.
	b.visit("/")
	b.do(chromedp.Evaluate[chromedp.Void](`(() => { const s = document.createElement('script');
		s.textContent = 'window.hit = 2'; document.body.append(s); })()`))
	require.True(t, eval[bool](b, `window.hit === undefined`))
}

// The page says that the server is down, also where it reads itself again, and shows it again when it is back.
func TestPageWhileTheServerIsDown(t *testing.T) {
	b := open(t, web.Options{})
	b.bury(b.queue("mail"), "x", queue.Job{ID: "a"})
	b.visit("/")
	b.do(chromedp.Click(chromedp.CSS("#live")))
	b.server.Kill()
	b.do(chromedp.WaitVisible(chromedp.CSS("main .warnbox")))
	require.Contains(t, b.text(), "server")
	require.Equal(t, http.StatusServiceUnavailable, b.visit("/queue?name=mail"))
	require.Equal(t, http.StatusServiceUnavailable, b.visit("/"))
	b.server.Restart()
	luatomictest.Eventually(t, patience, "the page reads itself again", func() bool {
		return eval[bool](b, `document.querySelector('main .warnbox') === null`)
	})
	require.Contains(t, b.text(), "No process has pushed", "the server has lost its data")
}

// What answers in place of the page, as a proxy does while the page is away and where a login is over, is not the page,
// nor is an answer that does not end: Live says that what it shows is old, and goes on when the page is back.
func TestLiveSaysThatAnotherAnswersForThePage(t *testing.T) {
	for what, front := range map[string]http.HandlerFunc{
		"an error of the proxy": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html><body><h1>502 Bad Gateway</h1></body></html>", http.StatusBadGateway)
		},
		"nothing": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a login": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<!doctype html><main id=main>Your name?</main>"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := open(t, web.Options{})
			b.bury(b.queue("mail"), "x", queue.Job{ID: "a"})
			b.visit("/")
			b.do(chromedp.Click(chromedp.CSS("#live")))
			b.front.Store(&front)
			luatomictest.Eventually(t, patience, "the page says that it is old", func() bool {
				return eval[bool](b, `document.getElementById('stale') !== null`)
			})
			shown := eval[string](b, `document.body.innerText`) // the page may change itself meanwhile
			require.Contains(t, shown, "What you see is old")
			require.Contains(t, shown, "mail")
			b.front.Store(nil)
			luatomictest.Eventually(t, patience, "the page reads itself again", func() bool {
				return eval[bool](b, `document.getElementById('stale') === null`)
			})
		})
	}
}

// By keyboard alone: move to the job, select it, reach the button, confirm.
func TestByKeyboardAlone(t *testing.T) {
	b := open(t, web.Options{Write: true})
	q := b.queue("mail")
	b.bury(q, "x", queue.Job{ID: "a"}, queue.Job{ID: "b"})
	b.visit("/queue?name=mail")
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("x"), chromedp.KeyEvent("j"), chromedp.KeyEvent("x"))
	require.Equal(t, 2, eval[int](b, `document.querySelectorAll('#jobs input[name=job]:checked').length`))
	b.tabTo("requeue")
	_, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent(kb.Enter))
	require.NoError(t, err)
	require.Contains(t, b.text(), "Requeue 2 dead jobs of mail?")
	b.tabTo("requeue")
	_, err = chromedp.RunResponse(b.ctx, chromedp.KeyEvent(kb.Enter))
	require.NoError(t, err)
	require.Equal(t, 2, b.stats(q).Ready)
}

// tabTo moves the focus to a button with the Tab key.
func (b *tab) tabTo(value string) {
	b.Helper()
	for range 60 {
		b.do(chromedp.KeyEvent(kb.Tab))
		if eval[bool](b, `document.activeElement.matches('button[value="`+value+`"]')`) {
			return
		}
	}
	require.Fail(b, "the button cannot be reached", value)
}
