package queue

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// Details are what a delivered job has beside its body. The fields are those of the same names in Job.
type Details struct {
	Kind        string
	Headers     map[string]string
	MaxFailures int
	Timeout     time.Duration
	ExpiresAt   time.Time
}

const (
	maxHeaders = 64
	maxHeader  = 1024 // bytes of a name, and of a value
	// reservedHeader begins the names of headers that the library sets.
	reservedHeader = "luatomic-"
)

// plain reports that a job has a body and nothing beside it.
func (j *Job) plain() bool {
	return j.Kind == "" && len(j.Headers) == 0 && j.MaxFailures == 0 && j.Timeout == 0 && j.ExpiresAt.IsZero()
}

// checkDetails returns an error if a queue cannot keep what the job has beside its body.
func (j *Job) checkDetails() error {
	if j.Kind != "" {
		if err := keys.CheckName("kind", j.Kind); err != nil {
			return err
		}
	}
	switch {
	case j.Timeout < 0:
		return &lua.RangeError{Field: "timeout", Value: j.Timeout.String(), Min: "0s"}
	case !j.ExpiresAt.IsZero() && !j.At.IsZero() && !j.ExpiresAt.After(j.At):
		return &lua.RangeError{Field: "ExpiresAt", Value: j.ExpiresAt.Format(time.RFC3339Nano),
			Min: "a time after At, " + j.At.Format(time.RFC3339Nano)}
	}
	return checkHeaders(j.Headers)
}

func checkHeaders(headers map[string]string) error {
	if len(headers) > maxHeaders {
		return &lua.SizeError{What: "headers", N: len(headers), Max: maxHeaders, Unit: "items"}
	}
	for name, value := range headers {
		switch {
		case name == "":
			return fmt.Errorf("%w: a header has no name; give it one", lua.ErrBadName)
		case len(name) > maxHeader:
			return fmt.Errorf("%w: the name of a header has %d bytes, at most %d", lua.ErrBadName, len(name), maxHeader)
		case strings.HasPrefix(strings.ToLower(name), reservedHeader):
			return fmt.Errorf("%w: header %q: names that begin with %s are reserved; use another",
				lua.ErrBadName, name, reservedHeader)
		case len(value) > maxHeader:
			return &lua.SizeError{What: fmt.Sprintf("header %q", name), N: len(value), Max: maxHeader, Unit: "bytes"}
		}
	}
	return nil
}

// encodeDetails returns the text that Redis keeps for the job. docs/layout.md has its format.
func (j *Job) encodeDetails() string {
	var expires int64
	if !j.ExpiresAt.IsZero() {
		expires = scoreOf(j.ExpiresAt)
	}
	b := strconv.AppendInt(nil, expires, 10)
	b = strconv.AppendInt(append(b, ':'), int64(j.MaxFailures), 10)
	b = strconv.AppendInt(append(b, ':'), clock.CeilMilli(j.Timeout), 10)
	b = append(b, ':')
	for _, text := range append([]string{j.Kind}, sortedPairs(j.Headers)...) {
		b = append(strconv.AppendInt(b, int64(len(text)), 10), ':')
		b = append(b, text...)
	}
	return string(b)
}

// sortedPairs returns names and values in turn, sorted by name.
func sortedPairs(headers map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		out = append(out, name, headers[name])
	}
	return out
}

// decodeDetails reads the text that encodeDetails made. From a text that something else wrote, it returns what can be
// read.
func decodeDetails(text string) (d Details) {
	var numbers [3]int64
	for i := range numbers {
		number, rest, found := strings.Cut(text, ":")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || !found {
			return d
		}
		numbers[i], text = n, rest
	}
	if numbers[0] > 0 {
		d.ExpiresAt = time.UnixMilli(numbers[0])
	}
	d.MaxFailures = int(min(max(numbers[1], math.MinInt), math.MaxInt)) // below zero for a job that never dies
	d.Timeout = time.Duration(min(max(numbers[2], 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	var ok bool
	if d.Kind, text, ok = cutSized(text); !ok {
		return d
	}
	for text != "" {
		var name, value string
		if name, text, ok = cutSized(text); !ok {
			break
		}
		if value, text, ok = cutSized(text); !ok {
			break
		}
		if d.Headers == nil {
			d.Headers = make(map[string]string)
		}
		d.Headers[name] = value
	}
	return d
}

// cutSized cuts a text that follows its length and a colon.
func cutSized(text string) (head, rest string, ok bool) {
	size, after, found := strings.Cut(text, ":")
	n, err := strconv.Atoi(size)
	if !found || err != nil || n < 0 || n > len(after) {
		return "", "", false
	}
	return after[:n], after[n:], true
}
