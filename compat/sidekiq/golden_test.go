package sidekiq

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// captured returns members that real Sidekiqs have written.
func captured(t *testing.T, version string) (members []string) {
	t.Helper()
	f, err := os.Open("testdata/captured/" + version + ".ndjson")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var row struct{ Type, Member string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row))
		if row.Type == "list" || row.Type == "zset" {
			members = append(members, row.Member)
		}
	}
	require.NoError(t, lines.Err())
	require.Greater(t, len(members), 30)
	return members
}

// From a captured payload's class, queue, arguments, id and further fields, Push makes the same bytes: the order of
// the fields, the escapes and the numbers.
func TestPayloadsAreThoseOfSidekiq(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]Version{"6.4.1": V6, "8.1.7": V8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := New(new(redis.Client), &Options{Version: version})
			require.NoError(t, err)
			for _, want := range captured(t, name) {
				job, created := rebuilt(t, want)
				src := source{now: created}
				got, err := d.draft(&job, &src)
				require.NoError(t, err, want)
				stamp, stamped, err := field([]byte(want), "enqueued_at")
				require.NoError(t, err)
				text := string(got.text)
				if stamped {
					text += `,"enqueued_at":` + string(stamp)
				}
				require.Equal(t, classFirst(want), text+"}")
				require.Equal(t, job.Queue, got.queue)
				require.Equal(t, job.JID, string(src.jids))
			}
		})
	}
}

// rebuilt returns the job of a payload.
func rebuilt(t *testing.T, payload string) (job Job, created []byte) {
	t.Helper()
	require.NoError(t, members([]byte(payload), func(m member) {
		value := []byte(payload[m.value:m.end])
		switch name := string(m.name); name {
		case "class":
			job.Class = text(value)
		case "queue":
			job.Queue = text(value)
		case "args":
			job.Args = value
		case "jid":
			job.JID = text(value)
		case "created_at":
			created = value
		case "enqueued_at":
		default:
			job.Fields = append(job.Fields, Field{name, value})
		}
	}))
	return job, created
}

// classFirst puts class before args: perform_async and Client.push order them differently, and Push follows
// Client.push.
func classFirst(payload string) string {
	return strings.Replace(payload, swapped(payload, "args")+`,"class":"HardJob"`,
		`"class":"HardJob",`+swapped(payload, "args"), 1)
}

func swapped(payload, name string) string {
	value, _, _ := field([]byte(payload), name)
	return `"` + name + `":` + string(value)
}

// Finished payloads are pushed byte for byte: the captured ones of the dialect's version.
func TestCapturedPayloadsPassUntouched(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]Version{"6.4.1": V6, "8.1.7": V8} {
		d, err := New(new(redis.Client), &Options{Version: version})
		require.NoError(t, err)
		for _, want := range captured(t, name) {
			got, err := d.draft(&Job{Payload: []byte(want)}, &source{})
			require.NoError(t, err)
			if strings.Contains(want, `,"enqueued_at":`) && got.kind == asIs {
				require.Equal(t, want, string(got.text))
			} else {
				require.Equal(t, want, string(got.text)+"}")
			}
		}
	}
}

// The mover's place of enqueued_at is the top-level one: putting the old value back restores the captured bytes.
func TestOnlyTheOutermostEnqueuedAtIsReplaced(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"6.4.1", "8.1.7"} {
		for _, want := range captured(t, name) {
			queue, from, till, err := destination([]byte(want), &source{})
			require.NoError(t, err)
			var outer struct {
				Queue      string
				EnqueuedAt json.RawMessage `json:"enqueued_at"`
			}
			require.NoError(t, json.Unmarshal([]byte(want), &outer))
			require.Equal(t, outer.Queue, queue)
			require.Equal(t, string(outer.EnqueuedAt), want[from:till])
			if from == till {
				require.Equal(t, "}", want[from:])
			}
		}
	}
}

func TestCanonicalForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		` [ 1 , 2.50 , "a" ] `:                     `[1,2.5,"a"]`,
		`[{"b":1,"a":{}},[]]`:                      `[{"b":1,"a":{}},[]]`,
		`[-0,-0.0,1E5,100000000000000000000000,1]`: `[0,-0.0,100000.0,100000000000000000000000,1]`,
		`["\/\u00e9\u001f\u2028\ud83c\udf89"]`:     "[\"/é\\u001f\u2028🎉\"]",
		`["<>&'"]`:                                 `["<>&'"]`,
		`[{"a":{"a":1}},{"a":2}]`:                  `[{"a":{"a":1}},{"a":2}]`,
	} {
		for _, v := range []Version{V4, V7, V8} {
			got, err := appendCanonical([]byte("x"), []byte(text), v, ErrArgs)
			require.NoError(t, err, text)
			require.Equal(t, "x"+want, string(got))
		}
	}
	for text, want := range map[string]error{
		``: ErrArgs, `[1,]`: ErrArgs, `[1 2]`: ErrArgs, `[1`: ErrArgs, `[01]`: ErrArgs, `[NaN]`: ErrArgs,
		`[1]]`:  ErrArgs,
		`{"a"}`: ErrArgs, `{"a":1,}`: ErrArgs,
		`{"a":1 "b":2}`: ErrArgs, `{"a":1,"a":2}`: ErrArgs, `[{"\u0061":1,"a":2}]`: ErrArgs, `[1e999]`: ErrNumber,
		`[-1e999]`:   ErrNumber,
		"[\"\xff\"]": ErrEncoding, `["\ud83c"]`: ErrEncoding, `["\udf89"]`: ErrEncoding,
		`["\ud83c\u0041"]`: ErrEncoding,
		`["\ud83cx"]`:      ErrEncoding,
		`["\ud83c\ud83c"]`: ErrEncoding, `["\ud83c\n"]`: ErrEncoding,
		strings.Repeat("[", 100) + strings.Repeat("]", 100): ErrArgs,
	} {
		_, err := appendCanonical(nil, []byte(text), V7, ErrArgs)
		require.ErrorIs(t, err, want, text)
	}
	_, err := appendCanonical(nil, []byte(strings.Repeat("[", 99)+strings.Repeat("]", 99)), V7, ErrArgs)
	require.NoError(t, err)
}

// The texts are those of Ruby 3.1 with json 2.6.1, and of json 2.15 and later.
func TestNumbersAreWrittenAsRubyDoes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		x        float64
		old, new string
	}{
		{0, "0.0", "0.0"}, {1, "1.0", "1.0"}, {-1.5, "-1.5", "-1.5"}, {0.1, "0.1", "0.1"},
		{1e10, "10000000000.0", "10000000000.0"},
		{1e14, "100000000000000.0", "100000000000000.0"}, {999999999999999.9, "999999999999999.9", "999999999999999.9"},
		{1e15, "1.0e+15", "1e+15"}, {1234567890123456, "1.234567890123456e+15", "1.234567890123456e+15"},
		{1234567890123456.8, "1234567890123456.8", "1234567890123456.8"},
		{-1413750033554588.2, "-1413750033554588.2", "-1413750033554588.2"},
		{9999999999999998, "9.999999999999998e+15", "9.999999999999998e+15"},
		{1e16, "1.0e+16", "1e+16"}, {12345678901234568, "1.2345678901234568e+16", "1.2345678901234568e+16"},
		{123456789012345680, "1.2345678901234568e+17", "1.2345678901234568e+17"}, {1e300, "1.0e+300", "1e+300"},
		{1e-4, "0.0001", "0.0001"},
		{0.00012345, "0.00012345", "0.00012345"}, {0.00009999, "9.999e-05", "0.00009999"},
		{0.00000015, "1.5e-07", "0.00000015"},
		{1e-9, "1.0e-09", "0.000000001"}, {1e-10, "1.0e-10", "1e-10"}, {5e-324, "5.0e-324", "5e-324"},
		{12345678901234.566, "12345678901234.566", "12345678901234.566"},
	} {
		got, err := appendFloat(nil, row.x, V7)
		require.NoError(t, err)
		require.Equal(t, row.old, string(got))
		got, err = appendFloat(nil, row.x, V8)
		require.NoError(t, err)
		require.Equal(t, row.new, string(got))
	}
}

// FuzzCanonical compares the canonical form with encoding/json: the same value, and a fixed point.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`[1,-0.0,1e5,"a\u00e9"]`, ` {"a" : [ ] , "b":{"c":null}} `, `["\ud83c\udf89"]`, `[1.0e+300,0.00000015]`,
		`[[[true],false]]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		for _, v := range []Version{V6, V8} {
			once, err := appendCanonical(nil, value, v, ErrArgs)
			if err != nil {
				return
			}
			twice, err := appendCanonical(nil, once, v, ErrArgs)
			require.NoError(t, err, "%q", once)
			require.Equal(t, string(once), string(twice))
			var before, after any
			require.NoError(t, json.Unmarshal(value, &before))
			require.NoError(t, json.Unmarshal(once, &after))
			require.Equal(t, before, after)
			require.False(t, bytes.ContainsAny(once, "\n\r\t"))
		}
	})
}

// Whether a payload is accepted does not depend on the previous one of the batch.
func TestTheHeadOfTheLastPayloadChangesNothing(t *testing.T) {
	t.Parallel()
	d, err := New(new(redis.Client), &Options{Version: V6, ExactTimes: true})
	require.NoError(t, err)
	all := captured(t, "6.4.1")
	for _, base := range []string{
		`{"queue":"q","class":"W","args":[1],"jid":"j"%s}`, `{"queue":"q","class":"W","jid":"j"%s,"args":[1]}`,
		`{"args":[1],"queue":"q","class":"W"%s,"jid":"j"}`,
		`{"queue":"q","class":"W","enqueued_at":1.5,"args":[1],"jid":"j"%s}`,
		`{"queue":"q","at":2.5,"class":"W","args":[1],"jid":"j"%s}`,
	} {
		for _, more := range []string{
			``, `,"class":1`, `,"queue":"other"`, `,"args":{}`, `,"enqueued_at":2.5`, `,"enqueued_at":2`,
			`,"at":3.5`, `}`,
			`,"x":"\xff"`, `,"x":[1`, `,"jid":"k"`,
			`,"y":1`, `,"y":{"queue":1,"y":2}`, `,"y":{"y":1,"y":2}`, `,"y":1,"y":2`,
		} {
			all = append(all, fmt.Sprintf(base, more))
		}
	}
	shared := 0
	for _, first := range all {
		for _, second := range all {
			var alone, after source
			want, wantErr := d.draft(&Job{Payload: []byte(second)}, &alone)
			_, _ = d.draft(&Job{Payload: []byte(first)}, &after)
			if h := after.head.text; h != nil && strings.HasPrefix(second, string(h)) {
				shared++
			}
			from := len(after.jids)
			got, err := d.draft(&Job{Payload: []byte(second)}, &after)
			require.Equal(t, wantErr == nil, err == nil, "%s after %s", second, first)
			if err == nil {
				require.Equal(t, string(want.text)+want.queue+want.kind, string(got.text)+got.queue+got.kind)
				require.Equal(t, want.later, got.later)
				require.Equal(t, string(alone.jids), string(after.jids[from:]))
			}
		}
	}
	require.Greater(t, shared, 100)
}
