package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/queue"
)

func TestLineErrors(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		`{"body":1,"unique":7}`:                              `"unique" is not a string`,
		`{"body":1,"unique":""}`:                             `unique is empty`,
		`{"body":1,"unique_ttl":"1s"}`:                       `"unique_ttl" without "unique"`,
		`{"body":1,"unique_ttl":5}`:                          `"unique_ttl" is not a string such as`,
		`{"body":1,"Body":2}`:                                `unknown field "Body"; the fields are body, id, at, delay, unique, unique_ttl`,
		`{"body":1,"id":"a", "body":"S:\":{"}`:               `field "body" stands twice; keep one`,
		`{"body":1,"delay":"1s","d\u0065lay":"2s","id":"a"}`: `field "delay" stands twice; keep one`,
		`{"id":"a"}`:                                         `"body" is missing`,
		`{}`:                                                 `"body" is missing`,
		`null`:                                               `null is not a job`,
		`[1]`:                                                `not a JSON object`,
		`"SECRET"`:                                           `not a JSON object`,
		`SECRET`:                                             `broken JSON at byte 1`,
		`{"body":1`:                                          `broken JSON at byte 9`,
		`{"body":1}{"body":2}`:                               `broken JSON at byte 11`,
		`{"body":1,"id":7}`:                                  `"id" is not a string`,
		`{"body":1,"id":""}`:                                 `id is empty`,
		`{"body":1,"id":"a}"}`:                               `brace`,
		`{"body":1,"at":"SECRET"}`:                           `"at": neither RFC 3339`,
		`{"body":1,"at":1.5}`:                                `"at": neither RFC 3339`,
		`{"body":1,"at":null}`:                               `"at": neither RFC 3339`,
		`{"body":1,"at":1795230010}`:                         `is it seconds?`,
		`{"body":1,"at":253402300800000}`:                    `too great`,
		`{"body":1,"delay":30}`:                              `"delay" is not a string such as`,
		`{"body":1,"delay":"SECRET"}`:                        `"delay" is not a duration such as`,
		`{"body":1,"delay":"-1s"}`:                           `"delay" is below zero`,
		`{"body":1,"delay":"1s","at":"2030-01-01T00:00:00Z"}`: `both "at" and "delay"`,
	} {
		_, err := (&lineForm{}).parse([]byte(line))
		require.ErrorContains(t, err, says, line)
		require.NotContains(t, err.Error(), "SECRET")
	}
}

func TestLineDefaults(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_900_000_000_000)
	other := `"2040-01-01T00:00:00.5Z"`
	otherAt := time.Date(2040, 1, 1, 0, 0, 0, 500_000_000, time.UTC)
	for _, test := range []struct {
		form  lineForm
		line  string
		at    time.Time
		delay time.Duration
	}{
		{lineForm{}, `{"body":1}`, time.Time{}, 0},
		{lineForm{delay: time.Second}, `{"body":1}`, time.Time{}, time.Second},
		{lineForm{delay: time.Second}, `{"body":1,"delay":"2s"}`, time.Time{}, 2 * time.Second},
		{lineForm{delay: time.Second}, `{"body":1,"delay":"0s"}`, time.Time{}, 0},
		{lineForm{delay: time.Second}, `{"body":1,"at":` + other + `}`, otherAt, 0},
		{lineForm{at: at}, `{"body":1}`, at, 0},
		{lineForm{at: at}, `{"body":1,"delay":"2s"}`, time.Time{}, 2 * time.Second},
		{lineForm{at: at}, `{"body":1,"at":1800000000000}`, time.UnixMilli(1_800_000_000_000), 0},
		{lineForm{at: at, raw: true}, `{"body":1,"at":1800000000000}`, at, 0},
	} {
		job, err := test.form.parse([]byte(test.line))
		require.NoError(t, err, test.line)
		require.True(t, test.at.Equal(job.At), test.line)
		require.Equal(t, test.delay, job.Delay, test.line)
	}
}

// Fields of the body are the body's own.
func TestFieldsThatStandOnce(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`{"body":{"a":1,"a":2},"id":"b"}`, `{"body":["\\",":",{"body":":"}] , "id" : "x:y\":"}`,
		`{"body":"a\\\":","id":"b"}`,
	} {
		job, err := (&lineForm{}).parse([]byte(line))
		require.NoError(t, err, line)
		require.Equal(t, 2, fieldsIn([]byte(line)))
		require.Contains(t, line, string(job.Body))
	}
	_, err := (&taskForm{}).parse([]byte(`{"name":"a","name":"b"}`))
	require.EqualError(t, err, `field "name" stands twice; keep one`)
	_, err = parseSidekiq([]byte(`{"class":"A","retry":1,"retry":2}`), &sidekiq.Job{})
	require.EqualError(t, err, `field "retry" stands twice; keep one`)
}

// Lines of every length around the reader's buffer come out whole and in order.
func TestBatchLines(t *testing.T) {
	t.Parallel()
	var want []string
	for n := 1; n < 40; n++ {
		want = append(want, strings.Repeat("a", n))
	}
	for n := 64<<10 - 3; n < 64<<10+4; n++ {
		want = append(want, strings.Repeat("b", n), strings.Repeat("c", 2*n))
	}
	text := strings.Join(want, "\n")
	for _, in := range []io.Reader{strings.NewReader(text), strings.NewReader(text + "\n"),
		iotest.HalfReader(strings.NewReader(text))} {
		var got []string
		line := 0
		for from := newBatches[queue.Job](in, &lineForm{raw: true}); ; {
			b, err := from.next()
			if b.lines > 0 {
				require.Equal(t, line+1, b.first)
				line = b.last
			}
			for _, job := range b.jobs {
				got = append(got, string(job.Body))
			}
			require.LessOrEqual(t, b.size, batchRoom)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
		require.Equal(t, want, got)
		require.Equal(t, len(want), line)
	}
}

func TestBatchLimits(t *testing.T) {
	t.Parallel()
	sizes := func(text string) (out []string) {
		for from := newBatches[queue.Job](strings.NewReader(text), &lineForm{raw: true}); ; {
			b, err := from.next()
			if b.lines > 0 {
				out = append(out, fmt.Sprintf("%d-%d:%d", b.first, b.last, len(b.jobs)))
			}
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				return out
			}
		}
	}
	require.Equal(t, []string{"1-1000:1000"}, sizes(strings.Repeat("x\n", queue.MaxBatch)))
	require.Equal(t, []string{"1-1000:1000", "1001-1001:1"}, sizes(strings.Repeat("x\n", queue.MaxBatch+1)))
	// Empty lines have numbers and do not count.
	require.Equal(t, []string{"2-2000:1000", "2002-2002:1"}, sizes(strings.Repeat("\nx\n", queue.MaxBatch+1)))
	third := strings.Repeat("x", batchRoom/3)
	require.Equal(t, []string{"1-2:2", "3-4:2", "5-5:1"}, sizes(strings.Repeat(third+"\n", 5)))
	// Of a line that is too long the rest is not taken for a line.
	long := strings.Repeat("x", maxLine+1)
	require.Equal(t, []string{"1-4:2"}, sizes(long+"\nx\n"+long+long+"\nx"))
	require.Equal(t, []string{"1-1:0"}, sizes(long))
}

func TestBatchReadError(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	from := newBatches[queue.Job](io.MultiReader(strings.NewReader("a\nb\n"), iotest.ErrReader(broken)),
		&lineForm{raw: true})
	b, err := from.next()
	require.ErrorIs(t, err, broken)
	require.Equal(t, 2, b.last)
	require.Len(t, b.jobs, 2)
}
