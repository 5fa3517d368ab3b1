package sidekiq

import (
	"bytes"
	"fmt"
	"strconv"
)

// finished checks a payload of the caller's and makes it a draft.
func (d *Dialect) finished(payload []byte, due later, src *source) (draft, error) {
	out := draft{later: due, text: payload}
	p, err := d.inspect(payload, src)
	if err != nil {
		return out, err
	}
	out.queue, out.jid = p.queue, len(src.jids)
	if p.at != nil {
		seconds, err := strconv.ParseFloat(string(p.at), 64)
		if err != nil {
			return out, fmt.Errorf("%w: at is not a number of seconds", ErrTime)
		}
		when, err := secondsTime(seconds)
		if err != nil {
			return out, err
		}
		if !due.is {
			if out.later, err = dueTime(when, 0); err != nil {
				return out, err
			}
		}
		if out.text, _, err = dropField(out.text, "at"); err != nil {
			return out, err
		}
	}
	switch {
	case p.stamped && !out.later.is:
		out.kind = asIs
		return out, nil
	case p.stamped:
		if out.text, _, err = dropField(out.text, "enqueued_at"); err != nil {
			return out, err
		}
	}
	end := bytes.LastIndexByte(out.text, '}')
	out.text = out.text[:end:end] // the bytes after it are the caller's
	return out, nil
}

// head is the start of the last finished payload, up to its arguments. Most payloads of a batch begin with the same
// bytes, which are then parsed once.
type head struct {
	text         []byte
	names        [][]byte // of the members in text
	class, queue span
}

// span is a range of a payload's bytes; one that ends at 0 is absent.
type span struct{ from, end int }

func (s span) of(payload []byte) []byte { return payload[s.from:s.end] }

// inspected is what a finished payload has outside its arguments.
type inspected struct {
	queue   string
	at      []byte
	stamped bool

	payload                 []byte
	class, args, jid, named span     // named is the queue's name
	early                   bool     // a relevant field other than class and queue precedes args
	names                   [][]byte // of the members up to args; nil when they are those of the last head
	bad                     error
	dialect                 *Dialect
}

func (p *inspected) visit(m member) {
	here := span{m.value, m.end}
	if p.names != nil && p.args.end == 0 {
		p.names = append(p.names, m.name)
	}
	switch string(m.name) {
	case "class":
		p.class = here
		return
	case "queue":
		p.named = here
		return
	case "args":
		p.args = here
		return
	case "jid":
		p.jid = here
	case "at":
		p.at = here.of(p.payload)
	case "enqueued_at":
		p.stamped = true
		p.time(here)
	case "created_at", "failed_at", "retried_at":
		p.time(here)
	default:
		return
	}
	p.early = p.early || p.args.end == 0
}

func (p *inspected) time(at span) {
	if err := p.dialect.checkTime(at.of(p.payload)); err != nil {
		p.bad = err
	}
}

func (d *Dialect) inspect(payload []byte, src *source) (p inspected, err error) {
	p.payload, p.dialect = payload, d
	known := len(src.head.text)
	s := scanner{text: payload, strict: true, names: src.names[:0]}
	if known > 0 && bytes.HasPrefix(payload, src.head.text) {
		p.class, p.named = src.head.class, src.head.queue
		s.names = append(s.names, src.head.names...)
		err = s.membersFrom(known, "args", p.visit)
	} else {
		known = 0
		p.names = make([][]byte, 0, 8)
		err = s.members(p.visit)
	}
	src.names = s.names[:0]
	if err == nil {
		err = p.fault()
	}
	if err != nil {
		return p, err
	}
	if known == 0 {
		src.head = p.head()
	}
	p.queue = src.name(p.named.of(payload))
	if jid := p.jid.of(payload); bytes.IndexByte(jid, '\\') >= 0 {
		src.jids = append(src.jids, unescape(jid)...)
	} else {
		src.jids = append(src.jids, jid[1:len(jid)-1]...)
	}
	return p, nil
}

// head returns what the next payload can share: all before the value of args, if no other relevant field precedes it.
func (p *inspected) head() head {
	if p.early || p.class.end > p.args.from || p.named.end > p.args.from {
		return head{}
	}
	return head{text: p.payload[:p.args.from], names: p.names, class: p.class, queue: p.named}
}

func (p *inspected) fault() error {
	filled := func(s span) bool { return s.end-s.from > 2 && p.payload[s.from] == '"' }
	switch {
	case p.bad != nil:
		return p.bad
	case !filled(p.class):
		return ErrClass
	case p.args.end == 0 || p.payload[p.args.from] != '[':
		return ErrArgs
	case !filled(p.named) || !filled(p.jid):
		return fmt.Errorf("%w: queue and jid were expected, both strings that are not empty", ErrPayload)
	}
	return nil
}

// text decodes a JSON string.
func text(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		return string(unescape(quoted))
	}
	return string(quoted[1 : len(quoted)-1])
}

// shortestMillis is how many digits an integer has at least that is meant as milliseconds.
const shortestMillis = 12

// checkTime returns an error when the version would misread the field. Sidekiq 8 distinguishes seconds from
// milliseconds by the decimal point; the others have seconds only.
func (d *Dialect) checkTime(value []byte) error {
	point := bytes.IndexByte(value, '.')
	if value[0] < '0' || value[0] > '9' || bytes.IndexByte(value, 'e') >= 0 || bytes.IndexByte(value, 'E') >= 0 {
		return fmt.Errorf("%w: a field with a time is not a number, or has a sign or an exponent", ErrTime)
	}
	switch {
	case point < 0 && !d.milliseconds():
		return fmt.Errorf("%w: a time without a decimal point; this version reads float seconds", ErrTime)
	case point < 0 && len(value) < shortestMillis:
		return fmt.Errorf("%w: an integer is milliseconds to this version, and this one is in 1973 or before", ErrTime)
	case point > 11 || len(value) > 24:
		return fmt.Errorf("%w: a float is seconds, and this one is after the year 9999", ErrTime)
	}
	return nil
}
