package sidekiq_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

var errSad = errors.New("sad")

// fail performs the payloads with a handler that returns the error, until all are performed.
func (s *site) fail(opts *sidekiq.WorkOptions, failure error, payloads ...string) sidekiq.Worked {
	s.t.Helper()
	before := s.count("stat:processed")
	s.enqueue("default", payloads...)
	end := s.work(s.d, opts, func(context.Context, *sidekiq.Delivery) error { return failure })
	s.eventually("all have failed", func() bool { return s.count("stat:processed") == before+len(payloads) })
	return end()
}

var failureTimes = map[sidekiq.Version]string{
	sidekiq.V6: `\d{10}\.\d{1,6}`, sidekiq.V7: `\d{10}\.\d{1,6}`, sidekiq.V8: `\d{13}`,
}

func TestAFailureIsWrittenAsSidekiqWritesIt(t *testing.T) {
	t.Parallel()
	for version, stamp := range failureTimes {
		t.Run(strconv.Itoa(int(version)), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, version)
			require.Equal(t, sidekiq.Worked{Retried: 1}, s.fail(nil, errSad, payload("default", "a", "")))
			require.Equal(t, 1, s.count("stat:failed"))
			require.Equal(t, 1, s.count(s.daily("stat:failed")))
			for _, name := range []string{"processed", "failed"} {
				left, err := s.client.TTL(t.Context(), s.key(s.daily("stat:"+name))).Result()
				require.NoError(t, err)
				require.Greater(t, left, 4*365*24*time.Hour, "five years, as Sidekiq has it")
			}
			first := s.members("retry")
			require.Len(t, first, 1)
			want := strings.TrimSuffix(payload("default", "a", ""), "}")
			tail := `,"error_message":"sad","error_class":"RuntimeError","failed_at":(` + stamp + `),"retry_count":`
			member := regexp.MustCompile(`^` + regexp.QuoteMeta(want) + tail + `0}$`)
			text, _ := first[0].Member.(string)
			require.Regexp(t, member, text)
			failed := s.seconds(member.FindStringSubmatch(text)[1], version)
			require.InDelta(t, float64(time.Now().UnixMilli())/1000, failed, 60)
			require.InDelta(t, failed+15+4.5, first[0].Score, 4.51+0.001, "15 s and up to 9 more")

			// The second failure overwrites in place, and appends retried_at.
			require.NoError(t, s.client.Del(t.Context(), s.key("retry")).Err())
			s.fail(nil, fmt.Errorf("no\u2028w <\"\\>: %w", errSad), text)
			second := s.members("retry")
			require.Len(t, second, 1)
			again, _ := second[0].Member.(string)
			require.Regexp(t,
				`^`+regexp.QuoteMeta(want)+`,"error_message":"no`+"\u2028"+`w <\\"\\\\>: sad",`+
					`"error_class":"RuntimeError","failed_at":`+stamp+`,"retry_count":1,"retried_at":`+stamp+`}$`,
				again)
			require.Contains(t, again, member.FindStringSubmatch(text)[1])
			require.InDelta(t, float64(time.Now().UnixMilli())/1000+16+9.5, second[0].Score, 60)
		})
	}
}

func (s *site) seconds(text string, version sidekiq.Version) float64 {
	s.t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(s.t, err)
	if version >= sidekiq.V8 {
		v /= 1000
	}
	return v
}

func TestWhereAFailedJobGoes(t *testing.T) {
	t.Parallel()
	const (
		retry = "retry"
		dead  = "dead"
		none  = ""
	)
	all := newSite(t, sidekiq.V7)
	now := time.Now().Unix()
	at := func(seconds int64) string { return strconv.FormatInt(seconds, 10) + ".5" }
	for name, c := range map[string]struct {
		from, to string // of the payload
		more     string
		failure  error
		where    string
	}{
		"true":                   {where: retry},
		"absent":                 {from: `"retry":true,`, where: retry},
		"null":                   {from: `"retry":true`, to: `"retry":null`, where: retry},
		"false":                  {from: `"retry":true`, to: `"retry":false`, where: none},
		"0":                      {from: `"retry":true`, to: `"retry":0`, where: dead},
		"1, the first time":      {from: `"retry":true`, to: `"retry":1`, where: retry},
		"1, the second time":     {from: `"retry":true`, to: `"retry":1`, more: `,"retry_count":0`, where: dead},
		"a word":                 {from: `"retry":true`, to: `"retry":"yes"`, where: retry},
		"the 25th":               {more: `,"retry_count":23`, where: retry},
		"the 26th":               {more: `,"retry_count":24`, where: dead},
		"a null count":           {more: `,"retry_count":null`, where: retry},
		"not to be kept":         {from: `"retry":true`, to: `"retry":0`, more: `,"dead":false`, where: none},
		"for a time, within":     {more: `,"retry_for":3600,"retry_count":20,"failed_at":` + at(now-60), where: retry},
		"for a time, over":       {more: `,"retry_for":3600,"retry_count":1,"failed_at":` + at(now-3700), where: dead},
		"for a time, first time": {more: `,"retry_for":3600`, where: retry},
		"for no time":            {more: `,"retry_for":0`, where: dead},
		"for a float of time":    {more: `,"retry_for":1800.5,"retry_count":1,"failed_at":` + at(now-1900), where: dead},
		"killed":                 {failure: sidekiq.Kill(errSad), where: dead},
		"killed, not kept": {failure: fmt.Errorf("so %w", sidekiq.Kill(errSad)), more: `,"dead":false`,
			where: none},
		"discarded": {failure: sidekiq.Discard(errSad), where: none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := all.another(t, sidekiq.V7)
			failure := c.failure
			if failure == nil {
				failure = errSad
			}
			p := strings.Replace(payload("default", "a", c.more), c.from, c.to, 1)
			worked := s.fail(nil, failure, p)
			require.Equal(t, 1, s.count("stat:failed"))
			require.Positive(t, s.client.TTL(t.Context(), s.key(s.daily("stat:failed"))).Val())
			require.Positive(t, s.client.TTL(t.Context(), s.key(s.daily("stat:processed"))).Val())
			require.Empty(t, s.workings())
			counts := map[string]int{retry: worked.Retried, dead: worked.Dead, none: worked.Dropped}
			require.Equal(t, 1, counts[c.where], "%+v", worked)
			for _, set := range []string{retry, dead} {
				if set == c.where {
					require.Len(t, s.members(set), 1, set)
				} else {
					require.Empty(t, s.members(set), set)
				}
			}
		})
	}
}

func TestAHandlerChoosesTheDelayAndTheQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V6)
	s.fail(nil, sidekiq.RetryIn(1000*time.Second, errSad), payload("default", "a", `,"retry_queue":"slow"`))
	m := s.members("retry")
	require.Len(t, m, 1)
	require.InDelta(t, float64(time.Now().Unix())+1000, m[0].Score, 60)
	text, _ := m[0].Member.(string)
	require.Contains(t, text, `"retry":true,"queue":"slow","class"`)
	require.Contains(t, text, `"error_class":"RuntimeError"`)
}

func TestALongMessageIsCutAndMadeValid(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.fail(nil, errors.New("\xff"+strings.Repeat("é", 20_000)), payload("default", "a", ""))
	text, _ := s.members("retry")[0].Member.(string)
	var job map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &job))
	require.Equal(t, "\ufffd"+strings.Repeat("é", 9999), job["error_message"])
}

// An error whose methods panic, as those of a nil pointer do, is the failure of its job, and does not end the process.
func TestAnErrorThatCannotBeReadIsAFailure(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.fail(nil, (*fs.PathError)(nil), payload("default", "a", ""))
	text, _ := s.members("retry")[0].Member.(string)
	require.Contains(t, text, "nil pointer dereference")
}

func TestAPanicIsAFailureWithABacktrace(t *testing.T) {
	t.Parallel()
	for version, coding := range map[sidekiq.Version]*regexp.Regexp{
		sidekiq.V5: regexp.MustCompile(`^$`), // the page of a job calls join on a list there
		sidekiq.V7: regexp.MustCompile(`^([A-Za-z0-9+/=]{1,60}\n)+$`),
		sidekiq.V8: regexp.MustCompile(`^[A-Za-z0-9+/=]+$`),
	} {
		s := newSite(t, version)
		s.enqueue("default", payload("default", "a", `,"backtrace":true`), payload("default", "b", `,"backtrace":3`),
			payload("default", "c", ""))
		end := s.work(s.d, nil, func(context.Context, *sidekiq.Delivery) error { panic("at the disco") })
		s.eventually("all have failed", func() bool { return s.count("stat:failed") == 3 })
		require.Equal(t, 3, end().Retried)
		for _, z := range s.members("retry") {
			var job map[string]any
			text, _ := z.Member.(string)
			require.NoError(t, json.Unmarshal([]byte(text), &job))
			require.Equal(t, "panic: at the disco", job["error_message"])
			require.Equal(t, "panic", job["error_class"])
			if job["jid"] == "c" {
				require.NotContains(t, job, "error_backtrace")
				continue
			}
			code, _ := job["error_backtrace"].(string)
			require.Regexp(t, coding, code)
			lines := unpackBacktrace(t, code, job["error_backtrace"])
			require.Contains(t, lines[0], "goroutine")
			if job["jid"] == "b" {
				require.Len(t, lines, 3)
			} else {
				require.Greater(t, len(lines), 3)
			}
		}
	}
}

func unpackBacktrace(t *testing.T, code string, plain any) (lines []string) {
	t.Helper()
	if list, ok := plain.([]any); ok {
		for _, line := range list {
			lines = append(lines, fmt.Sprint(line))
		}
		return lines
	}
	packed, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(code, "\n", ""))
	require.NoError(t, err)
	z, err := zlib.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &lines))
	return lines
}

// The scripts count whole seconds. With less than one, no job could leave its worker.
func TestDeadForIsASecondAtLeast(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.fail(&sidekiq.WorkOptions{DeadFor: time.Millisecond}, sidekiq.Kill(errSad), payload("default", "a", ""))
	require.Len(t, s.members("dead"), 1)
}

func TestTheDeadSetIsTrimmed(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	ctx := t.Context()
	now := float64(time.Now().Unix())
	for i := range 6 {
		young := redis.Z{Score: now - 10 + float64(i), Member: fmt.Sprint("young", i)}
		require.NoError(t, s.client.ZAdd(ctx, s.key("dead"), young).Err())
	}
	require.NoError(t, s.client.ZAdd(ctx, s.key("dead"), redis.Z{Score: now - 100, Member: "old"}).Err())
	s.fail(&sidekiq.WorkOptions{DeadFor: 60 * time.Second}, sidekiq.Kill(errSad), payload("default", "a", ""))
	require.Len(t, s.members("dead"), 7, "only the old one is deleted")
	s.fail(&sidekiq.WorkOptions{MaxDead: 5}, sidekiq.Kill(errSad), payload("default", "b", ""))
	dead := s.members("dead")
	require.Len(t, dead, 4, "Sidekiq trims to one less than the bound")
	require.Contains(t, dead[3].Member, `"jid":"b"`)
}

// A payload has no size limit, as in Sidekiq.
func TestALargeJobFails(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	pad := strings.Repeat("x", 3<<20)
	require.Equal(t, 1, s.fail(nil, errSad, payload("default", "a", `,"pad":"`+pad+`"`)).Retried)
	require.Contains(t, s.members("retry")[0].Member, pad)
	require.Equal(t, 1, s.fail(nil, sidekiq.Kill(errSad), payload("default", "b", `,"pad":"`+pad+`"`)).Dead)
	require.NoError(t, s.client.Del(t.Context(), s.key("dead")).Err())
	s.enqueue("default", strings.Repeat("no JSON", 1<<20))
	end := s.work(s.d, nil, content)
	s.eventually("it is dead", func() bool { return len(s.members("dead")) == 1 })
	require.Equal(t, 1, end().Dead)
}

// A job that cannot be moved stays in flight, and is moved once it can be.
func TestAFailedJobWaitsForItsSet(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	require.NoError(t, s.client.Set(t.Context(), s.key("retry"), "no set", 0).Err())
	s.enqueue("default", payload("default", "a", ""))
	seen := make(chan error, 1000)
	end := s.work(s.d, &sidekiq.WorkOptions{OnError: func(err error, j *sidekiq.Delivery) {
		if j != nil {
			seen <- err
		}
	}}, func(context.Context, *sidekiq.Delivery) error { return errSad })
	require.ErrorIs(t, <-seen, errSad)
	require.ErrorIs(t, <-seen, lua.ErrWrongType)
	require.Len(t, s.workings(), 1)
	require.NoError(t, s.client.Del(t.Context(), s.key("retry")).Err())
	s.eventually("it is moved", func() bool { return len(s.members("retry")) == 1 })
	require.Equal(t, sidekiq.Worked{Retried: 1}, end())
}
