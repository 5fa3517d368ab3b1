package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestPush(t *testing.T) {
	t.Parallel()
	e := shared(t)
	before := time.Now().Add(-time.Minute).UnixMilli()
	o := e.with(`{"body":{"b": [1.0, 12345678901234567890] ,"a":{}}, "id":"one"}

{"body":null}
{"body":"later","delay":"1h"}
{"body":"again","id":"one"}
{"body":"é\u00e9\/","at":"2020-01-01T00:00:00Z"}`).run("push", "q").exits(exitDone).object()
	holds(t, o, map[string]any{"pushed": 4, "ready": 3, "scheduled": 1, "duplicates": 1})
	require.NotContains(t, o, "failed_lines")
	require.NotContains(t, o, "skipped")
	require.Greater(t, o["now"], float64(before))
	require.Equal(t, []string{`{"b": [1.0, 12345678901234567890] ,"a":{}}`, `null`, `"é\u00e9\/"`}, e.bodies("q"))
}

func TestPushFile(t *testing.T) {
	t.Parallel()
	e := shared(t)
	file := filepath.Join(t.TempDir(), "jobs.ndjson")
	require.NoError(t, os.WriteFile(file, []byte("{\"body\":1}\r\n{\"body\":2}\r\n"), 0o600))
	holds(t, e.run("push", "--file", file, "q").exits(exitDone).object(), map[string]any{"pushed": 2})
	require.Equal(t, []string{"1", "2"}, e.bodies("q"))
	c := e.run("push", "q", "--file", file+".none").exits(exitFailed)
	require.Contains(t, c.stderr.String(), file+".none")
}

func TestPushNoFile(t *testing.T) {
	t.Parallel()
	c := shared(t).run("push", "q", "--file", t.TempDir()+"/none").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "the jobs cannot be read: ")
	require.Contains(t, c.stderr.String(),
		"no such file or directory; name their file with --file, or leave it out for stdin")
}

func TestPushAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := shared(t).run("push", "q", "--file", dir).exits(exitFailed)
	require.Contains(t, c.stderr.String(), "luatomic: --file "+dir+" is a folder; name a file of NDJSON\n")
}

// An editor has begun the file with a mark, which no parser of JSON takes. A raw body keeps its bytes.
func TestPushOfAMarkedFile(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for _, mark := range []string{"\ufeff", "\xff\xfe"} {
		c := e.with(mark+"{\"body\":1}\n").run("push", "q").exits(exitFailed)
		require.Contains(t, c.stderr.String(),
			"line 1: it begins with a byte order mark; save the file as UTF-8 without one")
	}
	e.with("\ufeffa\n").run("push", "q", "--raw").exits(exitDone)
	require.Equal(t, []string{"\ufeffa"}, e.bodies("q"))
}

func TestPushNothing(t *testing.T) {
	t.Parallel()
	o := shared(t).with("\n \n").run("push", "q").exits(exitDone).object()
	holds(t, o, map[string]any{"pushed": 0, "ready": 0, "scheduled": 0, "duplicates": 0})
	require.Nil(t, o["now"])
}

func TestPushTimes(t *testing.T) {
	t.Parallel()
	e := shared(t)
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	lines := fmt.Sprintf(`{"body":1}
{"body":2,"delay":"0s"}
{"body":3,"at":"2020-01-01T00:00:00Z"}
{"body":4,"delay":"2h"}
{"body":5,"at":%d}`, at.Add(2*time.Hour).UnixMilli())
	for name, args := range map[string][]string{
		"in": {"--in", "1h"}, "rfc": {"--at", at.Format(time.RFC3339)}, "ms": {"--at", fmt.Sprint(at.UnixMilli())},
	} {
		o := e.with(lines).run(append([]string{"push", name}, args...)...).exits(exitDone).object()
		holds(t, o, map[string]any{"ready": 2, "scheduled": 3})
		due, ok := e.stats(name).NextDue.Get()
		require.True(t, ok)
		require.WithinDuration(t, at, due, time.Minute)
		if name != "in" {
			require.Equal(t, at.UnixMilli(), due.UnixMilli())
		}
		require.Equal(t, []string{"2", "3"}, e.bodies(name))
	}
}

func TestPushRaw(t *testing.T) {
	t.Parallel()
	e := shared(t)
	holds(t, e.with("{\"id\": 1}\n\n  two \r\n\xff\x00\n").run("push", "q", "--raw").exits(exitDone).object(),
		map[string]any{"pushed": 3})
	require.Equal(t, []string{`{"id": 1}`, "  two \r", "\xff\x00"}, e.bodies("q"))
}

// A broken line keeps its own batch of 1000 lines out and no other.
func TestPushBrokenLine(t *testing.T) {
	t.Parallel()
	e := shared(t)
	var in strings.Builder
	for n := 1; n <= 2500; n++ {
		if n == 1203 {
			in.WriteString(`{"body":"a secret", "oops`)
		} else {
			fmt.Fprintf(&in, `{"body":%d}`, n)
		}
		in.WriteString("\n")
	}
	c := e.with(in.String()).run("push", "q").exits(exitFailed)
	o := c.object()
	holds(t, o, map[string]any{"pushed": 1500, "ready": 1500, "skipped": 1000, "failed_lines": []int{1203}})
	require.Contains(t, c.stderr.String(), "line 1203: broken JSON")
	require.Contains(t, c.stderr.String(), "lines 1001 to 2000")
	require.NotContains(t, c.stderr.String(), "secret")
	require.Equal(t, 1500, e.stats("q").Ready)
}

func TestPushLongLine(t *testing.T) {
	t.Parallel()
	e := shared(t)
	in := `{"body":"` + strings.Repeat("x", maxLine) + "\"}\n" + strings.Repeat("{\"body\":1}\n", 1004)
	c := e.with(in).run("push", "q").exits(exitFailed)
	holds(t, c.object(), map[string]any{"pushed": 5, "skipped": 1000, "failed_lines": []int{1}})
	require.Contains(t, c.stderr.String(), "line 1: the line is longer than 2097152 bytes")
}

func TestPushLargeBodies(t *testing.T) {
	t.Parallel()
	e := shared(t)
	var in strings.Builder
	for range 7 {
		in.WriteString(`{"body":"` + strings.Repeat("x", 400<<10) + "\"}\n")
	}
	holds(t, e.with(in.String()).run("push", "q").exits(exitDone).object(), map[string]any{"pushed": 7})
	c := e.with(strings.Repeat("x", 1<<20)).run("push", "q", "--raw").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "line 1: the job has 1048660 bytes")
}

func TestPushWrongType(t *testing.T) {
	t.Parallel()
	e := shared(t)
	require.NoError(t, luatomictest.Client(t).Set(t.Context(), e.prefix+"{q}:r", "text", time.Minute).Err())
	c := e.with(`{"body":1}`).run("push", "q").exits(exitFailed)
	holds(t, c.object(), map[string]any{"pushed": 0})
	require.Contains(t, c.stderr.String(), "luatomic: lines 1 to 1: push to \"q\"")
	require.Equal(t, 1, strings.Count(c.stderr.String(), "\n"))
}

// What was pushed when the interrupt came is what the object says.
func TestPushInterrupted(t *testing.T) {
	t.Parallel()
	e := shared(t)
	read, write := io.Pipe()
	e.stdin = read
	fed := make(chan error, 1)
	go func() {
		for {
			if _, err := io.WriteString(write, strings.Repeat("{\"body\":1}\n", 100)); err != nil {
				fed <- err
				return
			}
		}
	}()
	c := e.start("push", "q")
	luatomictest.Eventually(t, within, "a batch is in", func() bool { return e.stats("q").Ready >= 1000 })
	c.signal(os.Interrupt)
	c.exits(exitInterrupted)
	require.NoError(t, read.Close())
	require.True(t, errors.Is(<-fed, io.ErrClosedPipe))
	holds(t, c.object(), map[string]any{"pushed": e.stats("q").Ready, "duplicates": 0})
}

// An interrupt ends a push whose input says nothing.
func TestPushInterruptedWhileReading(t *testing.T) {
	t.Parallel()
	e := shared(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = write.Close() }()
	e.stdin = read
	c := e.start("push", "q", "--raw")
	require.NoError(t, read.Close())
	_, err = io.WriteString(write, strings.Repeat("x\n", 1500))
	require.NoError(t, err)
	luatomictest.Eventually(t, within, "the first batch is in", func() bool { return e.stats("q").Ready == 1000 })
	c.signal(os.Interrupt)
	holds(t, c.exits(exitInterrupted).object(), map[string]any{"pushed": 1000})
}

// The memory of a push does not grow with its input.
func TestPushMemory(t *testing.T) {
	t.Parallel()
	e := shared(t)
	const jobs, size = 100_000, 1000
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = write.Close() }()
	e.stdin = read
	c := e.start("push", "q")
	require.NoError(t, read.Close())
	thousand := strings.Repeat(`{"body":"`+strings.Repeat("x", size)+"\"}\n", 1000)
	for range jobs / 1000 {
		_, err := io.WriteString(write, thousand)
		require.NoError(t, err)
	}
	peak, known := peakMemory(c.cmd.Process.Pid)
	require.NoError(t, write.Close())
	holds(t, c.exits(exitDone).object(), map[string]any{"pushed": jobs})
	if !known {
		t.Skip("this system does not tell the peak of a process' memory")
	}
	require.Less(t, peak, jobs*size, "peak of the resident memory in bytes, against the input's size")
}

// peakMemory is the peak of a process' resident memory in bytes. The usage that
// wait reports will not do: it counts from before the program was loaded.
func peakMemory(pid int) (peak int, known bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	_, after, found := strings.Cut(string(status), "VmHWM:")
	if !found {
		return 0, false
	}
	_, err = fmt.Sscanf(after, "%d kB", &peak)
	return peak << 10, err == nil
}

// A push that a full server has ended goes on where it was, as its error says.
func TestPushIntoAFullServer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, e := server.Client(), &env{t: t, url: server.URL()}
	used, err := strconv.Atoi(regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(client.Info(t.Context(),
		"memory").Val())[1])
	require.NoError(t, err)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(used+12<<20)).Err())
	const lines = 6000
	body := strings.Repeat("x", 4096)
	var input strings.Builder
	for i := range lines {
		fmt.Fprintf(&input, "{\"body\":\"%d %s\"}\n", i, body)
	}
	full := e.with(input.String()).run("push", "q").exits(exitFailed)
	require.Contains(t, full.stderr.String(), "the server is full: raise its maxmemory")
	require.Equal(t, 1, strings.Count(full.stderr.String(), "\n"), full.stderr.String())
	found := regexp.MustCompile(`go on there with (--skip) (\d+)`).FindStringSubmatch(full.stderr.String())
	require.NotNil(t, found, full.stderr.String())
	holds(t, full.object(), map[string]any{"pushed": found[2]})

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	e.with(input.String()).run("push", "q", found[1], found[2]).exits(exitDone)
	holds(t, e.run("stats", "q").exits(exitDone).object(), map[string]any{"ready": lines})
}

// A push that ends in an outage says what is known of the lines, and how to go on.
func TestFailedBatchSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		first   int
		outcome error
		says    string
	}{
		{1, lua.ErrNotExecuted,
			"lines 1 to 1010: away: not executed; nothing of these lines is pushed; push them again"},
		{1001, lua.ErrNotExecuted, "; nothing of these lines is pushed; go on there with --skip 1000"},
		{1001, lua.ErrRefused, "; nothing of these lines is pushed; go on there with --skip 1000"},
		{1001, lua.ErrOutcomeUnknown,
			"; these lines may be in the queue; if they have ids, go on there with --skip 1000; " +
				"without ids, compare luatomic stats with the number before: " +
				"--skip 1000 pushes them again, --skip 1010 leaves them out"},
	} {
		b := &batch[int]{first: test.first, last: test.first + 9}
		if test.first == 1 {
			b.last = 1010
		}
		err := b.failed(fmt.Errorf("away: %w", test.outcome))
		require.ErrorIs(t, err, test.outcome)
		require.ErrorContains(t, err, test.says)
	}
}

func TestPushSkip(t *testing.T) {
	t.Parallel()
	e := shared(t)
	for skip, want := range map[string][]string{"0": {"1", "2", "3"}, "2": {"2", "3"}, "3": {"3"}, "9": nil} {
		name := "q" + skip
		e.with("{\"body\":1}\n\n{\"body\":2}\n{\"body\":3}\n").run("push", name, "--skip", skip).exits(exitDone)
		require.Equal(t, want, e.bodies(name), skip)
	}
}

// A full queue: the error says that the batch is not pushed, and how to go on.
func TestPushToAFullQueue(t *testing.T) {
	t.Parallel()
	e := shared(t)
	e.run("queue", "limit", "q", "1500").exits(exitDone)
	full := e.with(strings.Repeat("{\"body\":1}\n", 2001)).run("push", "q").exits(exitFailed)
	require.Contains(t, full.stderr.String(), "lines 1001 to 2000: ")
	require.Contains(t, full.stderr.String(), "nothing of these lines is pushed; go on there with --skip 1000")
	holds(t, full.object(), map[string]any{"pushed": 1000})
}
