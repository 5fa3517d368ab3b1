package web_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// post sends a form of this page and decodes what came.
func (s *site) post(target string, form url.Values, into any) {
	s.t.Helper()
	r := s.do(http.MethodPost, target, form)
	require.Equal(s.t, http.StatusOK, r.code, "%s %v: %s", target, form, r.body)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), into), r.body)
}

type changed struct {
	Count, Done, Left, Checked int
	Confirm                    bool
	Until                      time.Time
}

func (s *site) stats(q *queue.Queue) queue.Stats {
	s.t.Helper()
	st, err := q.Stats(s.t.Context())
	require.NoError(s.t, err)
	return st
}

// A job whose unique name another one holds stays dead, and the page says so. It holds up no other, and what its names
// are does not matter.
func TestRequeueOfAHeldNameSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("pool")
	s.bury(q, "boom", queue.Job{ID: "EOF dial 1", Unique: "a"}, queue.Job{ID: "free"}, queue.Job{ID: "READONLY 2"})
	_, err := q.Push(t.Context(), queue.Job{ID: "carpool", Unique: "a"})
	require.NoError(t, err)
	const says = "Still dead: 1, the first &#34;EOF dial 1&#34;: job &#34;carpool&#34; holds its unique name."
	for name, form := range map[string]url.Values{
		"Requeued: 0. ": {"verb": {"requeue"}, "state": {"dead"}, "id": {"EOF dial 1"}},
		"Requeued: 2. ": {"all": {"requeue"}, "state": {"dead"}, "confirm": {"3"}},
	} {
		r := s.do(http.MethodPost, "/jobs?name=pool", form)
		require.Equal(t, http.StatusConflict, r.code, r.body)
		require.Contains(t, r.body, name+says)
	}
	require.Equal(t, 1, s.stats(q).Dead)
}

// One dead job is requeued at once; a repeat finds that it is not dead any more.
func TestRequeueOfOneJob(t *testing.T) {
	t.Parallel()
	var log []web.Action
	s := newSite(t, web.Options{Write: true, OnAction: func(_ *http.Request, a web.Action) { log = append(log, a) }})
	q := s.queue("mail")
	s.bury(q, "boom", queue.Job{ID: "a"}, queue.Job{ID: "b"})
	require.Contains(t, s.ok("/job?name=mail&id=a"), `value="requeue"`)
	form := url.Values{"verb": {"requeue"}, "state": {"dead"}, "id": {"a"}}
	var got changed
	s.post("/jobs.json?name=mail", form, &got)
	require.Equal(t, changed{Count: 1, Done: 1, Until: got.Until}, got)
	st := s.stats(q)
	require.Equal(t, []int{1, 1}, []int{st.Ready, st.Dead})

	again := s.do(http.MethodPost, "/jobs?name=mail", form)
	require.Equal(t, http.StatusConflict, again.code)
	require.Contains(t, again.body, "ready now, not dead")
	require.Len(t, log, 1)
	require.Equal(t, "requeue", log[0].Verb)
	require.Equal(t, "queue mail", log[0].Target)
	require.Equal(t, []string{"a"}, log[0].IDs)
}

// What cannot be undone, and what is for several jobs, shows its number first and changes nothing. The form of that
// page, sent as a browser sends it, does it.
func TestNumberIsShownBeforeAChange(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]url.Values{
		"delete one":       {"verb": {"delete"}, "state": {"dead"}, "id": {"a"}},
		"requeue selected": {"verb": {"requeue"}, "state": {"dead"}, "id": {"a", "b"}},
		"delete all":       {"all": {"delete"}, "state": {"dead"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, web.Options{Write: true})
			q := s.queue("mail")
			s.bury(q, "boom", queue.Job{ID: "a"}, queue.Job{ID: "b"}, queue.Job{ID: "c"})
			page := s.do(http.MethodPost, "/jobs?name=mail", form)
			require.Equal(t, http.StatusOK, page.code)
			require.Contains(t, page.body, "Back, and change nothing")
			require.Equal(t, 3, s.stats(q).Dead, "nothing has changed")
			next := url.Values{}
			for _, m := range hiddenFields.FindAllStringSubmatch(page.body, -1) {
				next.Add(m[1], m[2])
			}
			var got changed
			s.post("/jobs.json?name=mail", next, &got)
			want := max(len(form["id"]), 1)
			if form.Has("all") {
				want = 3
			}
			require.Equal(t, []int{want, want}, []int{got.Count, got.Done})
			require.Equal(t, 3-want, s.stats(q).Dead)
		})
	}
}

var hiddenFields = regexp.MustCompile(`<(?:input type="hidden"|button) name="([a-z]+)" value="([^"]*)"`)

// A change of all is for at most the number that was shown, and for no job that died later.
func TestChangeOfAllKeepsToWhatWasShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	var jobs []queue.Job
	for i := range 250 {
		jobs = append(jobs, queue.Job{ID: fmt.Sprint("old", i)})
	}
	s.bury(q, "boom", jobs...)
	var asked, got changed
	s.post("/jobs.json?name=mail", url.Values{"all": {"requeue"}, "state": {"dead"}}, &asked)
	require.True(t, asked.Confirm)
	require.Equal(t, 250, asked.Count)
	luatomictest.Eventually(t, 20*time.Second, "the server's clock is past the form", func() bool {
		return s.stats(q).Now.After(asked.Until.Add(time.Millisecond))
	})
	s.bury(q, "later", queue.Job{ID: "new"})
	form := url.Values{"all": {"requeue"}, "state": {"dead"}, "confirm": {"250"},
		"until": {strconv.FormatInt(asked.Until.UnixMilli(), 10)}}
	s.post("/jobs.json?name=mail", form, &got)
	require.Equal(t, 250, got.Done)
	require.Equal(t, 1, s.stats(q).Dead)
	s.post("/jobs.json?name=mail", form, &got)
	require.Equal(t, 0, got.Done, "a repeat changes nothing")
	require.Equal(t, 1, s.stats(q).Dead)
}

func TestChangeOfAllThatMatch(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	s.bury(q, "smtp down", queue.Job{ID: "a", Kind: "x"}, queue.Job{ID: "b", Kind: "y"}, queue.Job{ID: "c", Kind: "x"})
	form := url.Values{"all": {"delete"}, "state": {"dead"}, "kind": {"x"}}
	var got changed
	s.post("/jobs.json?name=mail", form, &got)
	require.Equal(t, []int{2, 3}, []int{got.Count, got.Checked})
	form.Set("confirm", "2")
	s.post("/jobs.json?name=mail", form, &got)
	require.Equal(t, 2, got.Done)
	left, err := q.Peek(t.Context(), queue.Dead, 0, 10)
	require.NoError(t, err)
	require.Equal(t, "b", left[0].ID)
	require.Len(t, left, 1)
}

func TestScheduledJobsAreMovedAndCancelled(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	for i := range 5 {
		_, err := q.Push(t.Context(), queue.Job{ID: fmt.Sprint("j", i), Delay: time.Duration(i+1) * time.Hour})
		require.NoError(t, err)
	}
	var got changed
	s.post("/jobs.json?name=mail", url.Values{"verb": {"reschedule"}, "state": {"scheduled"}, "id": {"j4"},
		"in": {"10m"}}, &got)
	require.Equal(t, 1, got.Done)
	first, err := q.Peek(t.Context(), queue.Scheduled, 0, 1)
	require.NoError(t, err)
	require.Equal(t, "j4", first[0].ID)
	require.WithinDuration(t, s.stats(q).Now.Add(10*time.Minute), first[0].At, time.Minute)

	s.post("/jobs.json?name=mail", url.Values{"all": {"reschedule"}, "state": {"scheduled"}, "in": {"48h"},
		"confirm": {"5"}}, &got)
	require.Equal(t, 5, got.Done, "each once, though all move behind the others")
	s.post("/jobs.json?name=mail", url.Values{"all": {"cancel"}, "state": {"scheduled"}, "confirm": {"5"}}, &got)
	require.Equal(t, 5, got.Done)
	require.Zero(t, s.stats(q).Scheduled)
	_, err = q.Push(t.Context(), queue.Job{ID: "r"})
	require.NoError(t, err)
	s.post("/jobs.json?name=mail", url.Values{"verb": {"cancel"}, "state": {"ready"}, "id": {"r"}, "confirm": {"1"}},
		&got)
	require.Equal(t, 1, got.Done)
}

// Waiting jobs are buried, one without a question and all with one, and can be requeued.
// A form for all scheduled jobs that comes late, as a browser sends it again with its old tabs, changes nothing: what
// is scheduled by then was not shown.
func TestALateFormForAllScheduledJobsIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	s.push(q, 3, queue.Job{At: time.Now().Add(time.Hour)})
	send := func(verb string, age time.Duration) response {
		return s.do(http.MethodPost, "/jobs.json?name=mail", url.Values{"all": {verb}, "state": {"scheduled"},
			"confirm": {"3"}, "until": {strconv.FormatInt(s.stats(q).Now.Add(-age).UnixMilli(), 10)}})
	}
	forms := make(map[string]response)
	for _, verb := range []string{"reschedule", "bury", "cancel"} {
		forms[verb] = send(verb, web.FormFor+time.Second)
	}
	forms["reschedule by id"] = s.do(http.MethodPost, "/jobs.json?name=mail", url.Values{"verb": {"reschedule"},
		"state": {"scheduled"}, "id": {"job-0000"}, "in": {"1m"}, "confirm": {"1"},
		"until": {strconv.FormatInt(s.stats(q).Now.Add(-web.FormFor-time.Second).UnixMilli(), 10)}})
	for verb, r := range forms {
		require.Equal(t, http.StatusConflict, r.code, "%s: %s", verb, r.body)
		require.Contains(t, r.body, "Nothing was changed")
	}
	require.Equal(t, 3, s.stats(q).Scheduled)
	require.Equal(t, http.StatusOK, send("cancel", web.FormFor-time.Minute).code)
	require.Zero(t, s.stats(q).Scheduled)
}

func TestWaitingJobsAreBuried(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{ID: "a"}, queue.Job{ID: "b"}, queue.Job{ID: "later", Delay: time.Hour})
	require.NoError(t, err)
	var got changed
	s.post("/jobs.json?name=mail", url.Values{"verb": {"bury"}, "state": {"scheduled"}, "id": {"later"}}, &got)
	require.Equal(t, 1, got.Done)
	s.post("/jobs.json?name=mail", url.Values{"all": {"bury"}, "state": {"ready"}}, &got)
	require.True(t, got.Confirm)
	s.post("/jobs.json?name=mail", url.Values{"all": {"bury"}, "state": {"ready"}, "confirm": {"2"}}, &got)
	require.Equal(t, 2, got.Done)
	dead, err := q.Peek(t.Context(), queue.Dead, 0, 10)
	require.NoError(t, err)
	require.Len(t, dead, 3)
	require.Equal(t, "buried by hand", dead[0].Reason)
	s.post("/jobs.json?name=mail", url.Values{"verb": {"requeue"}, "state": {"dead"}, "id": {"b"}}, &got)
	require.Equal(t, 1, got.Done)
}

// An id is bytes and a field of a form is text: the page writes ids so that a browser changes nothing of them.
func TestJobsOfAnyIdAreChangedByTheirForms(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"caf\xe9", "100%", "a+b c&d"} {
		s := newSite(t, web.Options{Write: true})
		q := s.queue("mail")
		s.bury(q, "boom", queue.Job{ID: id}, queue.Job{ID: id + "2"}, queue.Job{ID: "stays"})
		form := func(page string) url.Values {
			next := url.Values{"state": {"dead"}, "verb": {"requeue"}}
			for _, m := range idFields.FindAllStringSubmatch(page, -1) {
				// What a browser does to a field.
				next.Add(m[1], strings.ToValidUTF8(html.UnescapeString(m[2]), "\ufffd"))
			}
			return next
		}
		one := s.do(http.MethodPost, "/jobs?name=mail", form(s.ok("/job?name=mail&id="+url.QueryEscape(id))))
		require.Equal(t, http.StatusOK, one.code, "%q: %s", id, one.body)
		require.Equal(t, 1, s.stats(q).Ready)
		s.bury(q, "boom", queue.Job{ID: "other"}) // takes the requeued one
		asked := s.do(http.MethodPost, "/jobs?name=mail", form(s.ok("/queue?name=mail")))
		require.Contains(t, asked.body, "Back, and change nothing")
		again := form(asked.body)
		again.Set("confirm", "3")
		all := s.do(http.MethodPost, "/jobs?name=mail", again)
		require.Equal(t, http.StatusOK, all.code, "%q: %s", id, all.body)
		require.Zero(t, s.stats(q).Dead)
	}
	s := newSite(t, web.Options{Write: true})
	s.bury(s.queue("mail"), "boom", queue.Job{ID: "a"})
	bad := s.do(http.MethodPost, "/jobs?name=mail", url.Values{"state": {"dead"}, "verb": {"requeue"}, "job": {"%zz"}})
	require.Equal(t, http.StatusBadRequest, bad.code)
}

var idFields = regexp.MustCompile(`name="(id|job)" value="([^"]*)"`)

// Without a script, Enter on a box presses the first button of the form, which stands for no change.
func TestTheFirstButtonOfTheJobsChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	s.bury(q, "boom", queue.Job{ID: "a"})
	_, form, _ := strings.Cut(s.ok("/queue?name=mail"), `id="jobs">`)
	_, button, _ := strings.Cut(form, "<button")
	require.Regexp(t, `^ hidden></button>`, button)
	r := s.do(http.MethodPost, "/jobs?name=mail", url.Values{"state": {"dead"}, "job": {"a"}})
	require.Equal(t, http.StatusBadRequest, r.code)
	require.Contains(t, r.body, "No change is named.")
	require.Equal(t, 1, s.stats(q).Dead)
}

func TestQueueIsPausedResumedAndBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{ID: "a"})
	require.NoError(t, err)
	require.Contains(t, s.ok("/queue?name=mail"), `value="pause"`)
	for _, step := range []struct {
		form   url.Values
		paused bool
		limit  int
	}{
		{url.Values{"verb": {"pause"}}, true, 0}, {url.Values{"verb": {"pause"}}, true, 0},
		{url.Values{"verb": {"limit"}, "limit": {"7"}}, true, 7}, {url.Values{"verb": {"resume"}}, false, 7},
	} {
		require.Equal(t, http.StatusOK, s.do(http.MethodPost, "/queue/settings?name=mail", step.form).code)
		st := s.stats(q)
		require.Equal(t, step.paused, st.Paused)
		require.Equal(t, step.limit, st.Limit)
	}
}

// A release names the fence: the next holder keeps the lock when the form comes again.
func TestReleaseIsForTheFenceThatWasShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	locker := lock.New(s.client, &lock.Options{Prefix: s.prefix, TTL: time.Minute})
	defer locker.Close()
	first, err := locker.Try(t.Context(), "nightly")
	require.NoError(t, err)
	fence := strconv.FormatInt(first.Fence(), 10)
	require.Contains(t, s.ok("/locks?name=nightly"), `name="fence" value="`+fence+`"`)
	form := url.Values{"fence": {fence}}
	var got struct{ Released bool }
	s.post("/locks/release.json?kind=lock&name=nightly", form, &got)
	require.True(t, got.Released)
	second, err := locker.Try(t.Context(), "nightly")
	require.NoError(t, err)
	again := s.do(http.MethodPost, "/locks/release?kind=lock&name=nightly", form)
	require.Equal(t, http.StatusConflict, again.code)
	require.NoError(t, second.Extend(t.Context()), "the next holder keeps it")
}

func TestPermitsAreRevokedByTheirMark(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	locker := lock.New(s.client, &lock.Options{Prefix: s.prefix, TTL: time.Minute})
	defer locker.Close()
	keep, err := locker.Semaphore("api", 2).Acquire(t.Context(), 1)
	require.NoError(t, err)
	later := locker.With(lock.Options{TTL: 2 * time.Minute}) // the holder whose lease ends first is listed first
	lose, err := later.Semaphore("api", 2).Acquire(t.Context(), 1)
	require.NoError(t, err)
	reader, err := locker.RW("table").RAcquire(t.Context())
	require.NoError(t, err)
	for kind, name := range map[string]string{"semaphore": "api", "rw": "table"} {
		var page struct {
			Locks []struct{ Holders []struct{ Permit string } }
		}
		s.read("/locks.json?kind="+kind+"&name="+name, &page)
		holders := page.Locks[0].Holders
		mark := holders[len(holders)-1].Permit
		target := "/locks/release?kind=" + kind + "&name=" + name
		require.Equal(t, http.StatusConflict, s.do(http.MethodPost, target, url.Values{"permit": {"0000"}}).code)
		done := s.do(http.MethodPost, target, url.Values{"permit": {mark}})
		require.Equal(t, http.StatusOK, done.code, done.body)
		require.Equal(t, http.StatusConflict, s.do(http.MethodPost, target, url.Values{"permit": {mark}}).code)
	}
	require.NoError(t, keep.Extend(t.Context()))
	require.Error(t, lose.Extend(t.Context()))
	require.Error(t, reader.Extend(t.Context()))
}

// The list and a change of all that match are for jobs of a reason and of an age, too; a form that goes on keeps both.
func TestAChangeOfAJobsReasonAndAge(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	s.bury(q, "smtp: 421", queue.Job{ID: "old"}, queue.Job{ID: "new"})
	s.bury(q, "template", queue.Job{ID: "other"})
	died := float64(time.Now().Add(-2 * time.Hour).UnixMilli())
	for _, id := range []string{"old", "other"} {
		require.NoError(t, s.client.ZAddXX(t.Context(), s.prefix+"{mail}:d", redis.Z{Score: died, Member: id}).Err())
	}
	listed := func(filter string) (ids []string) {
		var page struct{ Jobs []struct{ ID string } }
		s.read("/queue.json?name=mail&state=dead&"+filter, &page)
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		return ids
	}
	require.ElementsMatch(t, []string{"old", "new"}, listed("reason=smtp"))
	require.ElementsMatch(t, []string{"old", "other"}, listed("older=1h"))
	require.Equal(t, []string{"old"}, listed("reason=smtp&older=1h"))
	require.Contains(t, s.ok("/queue?name=mail&state=dead&older=1h"), `name="older" value="1h"`)

	form := url.Values{"all": {"requeue"}, "state": {"dead"}, "reason": {"smtp"}, "older": {"1h"}}
	page := s.do(http.MethodPost, "/jobs?name=mail", form).body
	require.Contains(t, page, "with the reason <b>smtp</b>")
	require.Contains(t, page, "dead for <b>1h</b> or longer")
	require.Contains(t, page, `name="reason" value="smtp"><input type="hidden" name="older" value="1h">`)
	form.Set("confirm", "1")
	var got struct{ Done int }
	s.post("/jobs.json?name=mail", form, &got)
	require.Equal(t, 1, got.Done)
	require.Equal(t, queue.Ready, lab.Must(q.Find(t.Context(), "old"))[0].State)

	form = url.Values{"all": {"delete"}, "state": {"dead"}, "older": {"1h"}, "confirm": {"9"}}
	s.post("/jobs.json?name=mail", form, &got)
	require.Equal(t, 1, got.Done, "the age alone")
	require.Equal(t, []string{"new"}, listed(""))
	for _, bad := range []string{"state=dead&older=soon", "state=dead&older=-1h", "state=scheduled&older=1h"} {
		require.Equal(t, http.StatusBadRequest, s.get("/queue?name=mail&"+bad).code, bad)
	}
}
