package web_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// A browser makes text of the fields of a form: the name of a queue whose bytes are no text would be another one. The
// page of such a queue has only forms whose address names it.
func TestNoFormHasANameThatIsNoText(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	for _, name := range []string{"mail", "b\xff"} {
		_, err := s.queue(name).Push(t.Context(), queue.Job{ID: "a"})
		require.NoError(t, err)
	}
	const field = `<input type="hidden" name="name" value="`
	require.Contains(t, s.ok("/queue?name=mail"), field)
	page := s.ok("/queue?name=b%ff")
	require.NotContains(t, page, field)
	require.Contains(t, page, "no form can send")
	require.Contains(t, page, `action="/jobs?name=b%ff&amp;tag="`)
}

// The JSON of a job has its id in a form that names the job, also where the id is no text.
func TestIDsThatAreNoTextInJSON(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{ID: "text"}, queue.Job{ID: "a\xff"}, queue.Job{ID: "a\xfe"})
	require.NoError(t, err)
	var page struct {
		Jobs []struct{ ID, Job string }
	}
	s.read("/queue.json?name=mail", &page)
	require.Len(t, page.Jobs, 3)
	require.Empty(t, page.Jobs[0].Job, "a text needs no other form")
	var out changed
	for _, j := range page.Jobs[1:] {
		s.ok("/job?name=mail&id=" + j.Job)
		s.post("/jobs.json?name=mail", url.Values{
			"verb": {"cancel"}, "state": {"ready"}, "job": {j.Job}, "confirm": {"1"},
		}, &out)
		require.Equal(t, 1, out.Done)
	}
}
