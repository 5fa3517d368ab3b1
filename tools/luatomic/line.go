package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/queue"
)

// lineForm makes a job of a line of input.
type lineForm struct {
	raw bool
	// at and delay are for the lines without a time of their own.
	at    time.Time
	delay time.Duration
}

// jobSize is what a job takes of queue.MaxBatchBytes: its body, its id or the
// one that is made for it, its unique name, and its times.
func jobSize(j *queue.Job) int { return len(j.Body) + max(len(j.ID), 36) + len(j.Unique) + 48 }

func (*lineForm) size(j *queue.Job) int { return jobSize(j) }

// A raw body of blanks is a job.
func (f *lineForm) blanks() bool { return f.raw }

// batchRoom is the part of queue.MaxBatchBytes that jobs may fill; keys and
// options of the call need the remaining bytes.
const batchRoom = queue.MaxBatchBytes - 4096

// parse makes a job of a line. The body keeps its bytes as they are in the line;
// the job does not refer to the line's memory. An error names the field and never
// quotes the input.
func (f *lineForm) parse(line []byte) (queue.Job, error) {
	job := queue.Job{Delay: f.delay, At: f.at}
	if f.raw {
		job.Body = slices.Clone(line)
	} else if err := f.parseObject(line, &job); err != nil {
		return queue.Job{}, err
	}
	if n := jobSize(&job); n > batchRoom {
		return queue.Job{}, fmt.Errorf("the job has %d bytes, at most %d are possible; "+
			"store the data elsewhere and push its place", n, batchRoom)
	}
	return job, nil
}

func (f *lineForm) parseObject(line []byte, job *queue.Job) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return badJSON(err)
	}
	if fields == nil {
		return errors.New(`null is not a job; write {"body": ...}`)
	}
	if err := checkOnce(line, len(fields)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := parseField(name, fields[name], job); err != nil {
			return err
		}
	}
	if job.Body == nil {
		return errors.New(`"body" is missing; with --raw the whole line is the body`)
	}
	if job.UniqueTTL > 0 && job.Unique == "" {
		return errors.New(`"unique_ttl" without "unique"; add "unique", or leave it out`)
	}
	return mergeTime(fields, f, job)
}

// checkOnce refuses an object with two fields of one name, of which package json keeps the last. n is how many names it
// has. The line is valid JSON.
func checkOnce(line []byte, n int) error {
	if fieldsIn(line) == n {
		return nil
	}
	seen := make(map[any]bool, n)
	dec := json.NewDecoder(bytes.NewReader(line))
	_, _ = dec.Token() // the brace
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return badJSON(err)
		}
		if seen[name] {
			return twice(name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return badJSON(err)
		}
	}
	return nil
}

func twice(name any) error { return fmt.Errorf("field %q stands twice; keep one", name) }

// fieldsIn counts the fields of an object: the colons that are in none of its values.
func fieldsIn(line []byte) (n int) {
	depth, text := 0, false
	for i := 0; i < len(line); i++ {
		switch b := line[i]; {
		case text && b == '\\':
			i++
		case b == '"':
			text = !text
		case text:
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			depth--
		case b == ':' && depth == 1:
			n++
		}
	}
	return n
}

// parseField reads one field. The times of the defaults are still in the job.
func parseField(name string, value json.RawMessage, job *queue.Job) (err error) {
	switch name {
	case "body":
		job.Body = value
	case "id":
		return parseName(name, value, &job.ID)
	case "at":
		job.At, err = parseAtField(value)
	case "delay":
		job.Delay, err = parseDuration(name, value)
	case "unique":
		return parseName(name, value, &job.Unique)
	case "unique_ttl":
		job.UniqueTTL, err = parseDuration(name, value)
	default:
		return fmt.Errorf("unknown field %q; the fields are body, id, at, delay, unique, unique_ttl", name)
	}
	return err
}

// parseName reads a field that identifies a job. Package json replaces all invalid UTF-8
// by one character, which would make one name of two.
func parseName(field string, value json.RawMessage, into *string) error {
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("%q is not a string", field)
	}
	if strings.ContainsRune(*into, utf8.RuneError) {
		return fmt.Errorf("%q is not valid UTF-8", field)
	}
	if field == "unique" {
		return keys.CheckSecret(field, *into)
	}
	return keys.CheckName(field, *into)
}

// mergeTime lets a line's own time replace the default, in either form.
func mergeTime(fields map[string]json.RawMessage, f *lineForm, job *queue.Job) error {
	_, at := fields["at"]
	_, delay := fields["delay"]
	switch {
	case at && delay:
		return errors.New(`both "at" and "delay"; leave one of them out`)
	case at:
		job.Delay = 0
	case delay:
		job.At = time.Time{}
	default:
		job.At, job.Delay = f.at, f.delay
	}
	return nil
}

func parseAtField(value json.RawMessage) (time.Time, error) {
	text := string(value)
	if value[0] == '"' {
		if err := json.Unmarshal(value, &text); err != nil {
			return time.Time{}, errors.New(`"at" is not a string that can be read`)
		}
	}
	at, err := parseAt(text)
	if err != nil {
		return time.Time{}, fmt.Errorf(`"at": %w`, err)
	}
	return at, nil
}

// The range of times in ms: a smaller number is probably seconds, a greater one has
// a year of five digits.
const (
	firstMilli = 100_000_000_000
	lastMilli  = 253_402_300_799_999
)

// parseAt reads RFC 3339 or Unix milliseconds.
func parseAt(text string) (time.Time, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		switch {
		case ms < firstMilli:
			return time.Time{}, errors.New("the number is too small for milliseconds since 1970; is it seconds?")
		case ms > lastMilli:
			return time.Time{}, errors.New("the number is too great for milliseconds since 1970")
		}
		return time.UnixMilli(ms), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{},
			errors.New("neither RFC 3339, such as 2030-01-31T12:00:00Z, nor whole milliseconds since 1970")
	}
	return at, nil
}

func parseDuration(field string, value json.RawMessage) (time.Duration, error) {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return 0, fmt.Errorf(`%q is not a string such as "30s" or "1h30m"`, field)
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf(`%q is not a duration such as "30s" or "1h30m"`, field)
	case d < 0:
		return 0, fmt.Errorf("%q is below zero", field)
	}
	return d, nil
}

// badJSON reports where a line is broken, without quoting it.
func badJSON(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("broken JSON at byte %d; with --raw the whole line is the body", syntax.Offset)
	}
	return errors.New(`not a JSON object; write {"body": ...}, or --raw to take the whole line as the body`)
}
