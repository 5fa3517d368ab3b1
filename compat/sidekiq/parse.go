package sidekiq

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// ParseJob reads a job from one JSON object with the fields that Sidekiq::Client.push takes: class and args, and
// optionally queue, jid, created_at (float seconds or whole milliseconds), and at in seconds. enqueued_at is dropped,
// as a push sets it; all others become Fields. The push fills in defaults and checks the values. Errors: ErrPayload,
// ErrClass, ErrTime.
func ParseJob(object []byte) (Job, error) {
	var job Job
	var bad error
	err := members(object, func(m member) {
		if err := job.take(string(m.name), object[m.value:m.end:m.end]); err != nil {
			bad = err
		}
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return Job{}, err
	}
	return job, nil
}

// take sets one field. Of two fields with one name the last counts, as in Ruby.
func (j *Job) take(name string, value json.RawMessage) (err error) {
	switch name {
	case "class":
		if j.Class, err = stringField(value); err != nil {
			return fmt.Errorf("%w: class is not a string", ErrClass)
		}
	case "queue":
		j.Queue, err = stringField(value)
	case "jid":
		j.JID, err = stringField(value)
	case "args":
		j.Args = value
	case "at":
		var s float64
		if s, err = strconv.ParseFloat(string(value), 64); err == nil {
			j.At, err = secondsTime(s)
		}
		return timeError(err, name)
	case "created_at":
		if j.CreatedAt, err = timeField(value, V8); err == nil && isInteger(value) && len(value) < shortestMillis {
			return fmt.Errorf("%w: created_at is an integer of milliseconds, and this one is in 1973 or before; "+
				"write seconds with a decimal point", ErrTime)
		}
		return timeError(err, name)
	case "enqueued_at":
	default:
		for i := range j.Fields {
			if j.Fields[i].Name == name {
				j.Fields[i].Value = value
				return nil
			}
		}
		j.Fields = append(j.Fields, Field{Name: name, Value: value})
	}
	if err != nil {
		return fmt.Errorf("%w: %s is not a string", ErrPayload, name)
	}
	return nil
}

func stringField(value []byte) (string, error) {
	if value[0] != '"' {
		return "", ErrPayload
	}
	return text(value), nil
}

func timeError(err error, name string) error {
	if err != nil {
		return fmt.Errorf("%w: %s is not a time", ErrTime, name)
	}
	return nil
}

// timeField reads a time from the value of a field, by the type of its JSON as Sidekiq 8 does: a float is seconds, an
// integer milliseconds. To 7 all numbers are seconds, so there an integer too short for milliseconds is seconds.
func timeField(value []byte, v Version) (time.Time, error) {
	if ms, err := strconv.ParseInt(string(value), 10, 64); err == nil && (v >= V8 || len(value) >= shortestMillis) {
		return time.UnixMilli(ms), nil
	}
	s, err := strconv.ParseFloat(string(value), 64)
	if err != nil {
		return time.Time{}, ErrNumber
	}
	return secondsTime(s)
}
