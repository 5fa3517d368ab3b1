package wire

import (
	"fmt"
	"strings"
	"time"
	"unsafe"
)

// Next cuts the first frame off a message, with its header if it is an item.
func Next(message string) (item, rest string, err error) {
	if message == "" || message[0] < '0' || message[0] > '9' {
		return message, "", nil
	}
	_, _, size, head, ok := cutHeader(message)
	if !ok || size > len(message)-head {
		return "", "", ErrMalformed
	}
	return message[:head+size], message[head+size:], nil
}

// Decode checks and decodes a frame with or without a header, as Next returns it. It fails with ErrMalformed, with
// ErrForged, or with an *UnreadableError.
func Decode(item string, s *Sealer) (Frame, error) {
	attempt, left, framed := int64(-1), time.Duration(0), item
	if item != "" && item[0] >= '0' && item[0] <= '9' {
		a, l, size, head, ok := cutHeader(item)
		if !ok || size != len(item)-head {
			return nil, ErrMalformed
		}
		attempt, left, framed = a, l, item[head:]
	}
	if framed != "" && framed[0] == 'Q' {
		if attempt < 0 {
			return nil, ErrMalformed
		}
		return asFrame(DecodeRequest(framed, attempt, left, s))
	}
	frame, err := s.Open(framed)
	if err != nil {
		return nil, err
	}
	kind, r := newReader(frame)
	switch kind {
	case 'R', 'E':
		return asFrame(decodeAnswer(kind, r))
	case 'C':
		return asFrame(decodeChunk(r))
	case 'B':
		return asFrame(decodeBody(r))
	default:
		return asFrame(decodeNotice(NoticeKind(kind), r))
	}
}

// asFrame keeps a nil pointer from becoming a Frame that is not nil.
func asFrame[F Frame](f F, err error) (Frame, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// UnreadableError reports a frame of another version, or a request that is malformed behind its id. It matches
// ErrMalformed.
type UnreadableError struct {
	ID      string
	Attempt int64
	Left    time.Duration
	Request bool
	Version byte // of the frame, where it is not read; 0 for a malformed one
	Flags   uint64
}

func (e *UnreadableError) Error() string {
	switch {
	case e.Version != 0:
		return fmt.Sprintf("luatomic: a frame of version %d; this process reads version %d", e.Version, Version)
	case e.Flags != 0:
		return fmt.Sprintf("luatomic: a request with unknown flags %#x; this process reads version %d",
			e.Flags, Version)
	}
	return "luatomic: malformed request"
}

// Is matches ErrMalformed.
func (e *UnreadableError) Is(target error) bool { return target == ErrMalformed }

// DecodeRequest checks and decodes a request that was stored without a header. Where the id can be read, the error is
// an *UnreadableError.
func DecodeRequest(frame string, attempt int64, left time.Duration, s *Sealer) (*Request, error) {
	frame, err := s.Open(frame)
	if err != nil {
		return nil, err
	}
	kind, r := newReader(frame)
	if kind != 'Q' {
		return nil, ErrMalformed
	}
	q := &Request{Attempt: attempt, Left: left, ID: r.text()}
	if !r.ok {
		return nil, ErrMalformed
	}
	if r.version != Version {
		return nil, q.unreadable(r.version, 0)
	}
	q.Method, q.Flags = r.text(), r.uvarint()
	keep := r.uvarint()
	if unknown := q.Flags &^ knownFlags; unknown != 0 {
		return nil, q.unreadable(0, unknown)
	}
	q.Ext = r.readExt()
	q.Body = []byte(r.text())
	if !r.end() || keep > uint64(MaxKeep.Milliseconds()) {
		return nil, q.unreadable(0, 0)
	}
	q.Keep = time.Duration(keep) * time.Millisecond
	return q, nil
}

// unreadable says why the request is not read: by its version, its flags, or what follows.
func (q *Request) unreadable(version byte, flags uint64) error {
	return &UnreadableError{ID: q.ID, Attempt: q.Attempt, Left: q.Left, Request: true, Version: version, Flags: flags}
}

func decodeAnswer(kind byte, r reader) (*Answer, error) {
	a := &Answer{ID: r.text()}
	if r.ok && r.version != Version {
		return nil, &UnreadableError{ID: a.ID, Version: r.version}
	}
	if kind == 'E' {
		a.Failure = &Failure{Code: r.text(), Message: r.text()}
		a.Ext = r.readExt()
	} else {
		a.Ext = r.readExt()
		a.Body = []byte(r.text())
	}
	if !r.end() {
		return nil, ErrMalformed
	}
	return a, nil
}

func decodeChunk(r reader) (*Chunk, error) {
	c := &Chunk{ID: r.text(), Seq: r.uvarint()}
	c.Body = []byte(r.text())
	if !r.end() || r.version != Version {
		return nil, ErrMalformed
	}
	return c, nil
}

// decodeBody takes the body over from the text, which has nothing else and which nobody else may keep: it is large.
func decodeBody(r reader) (*Body, error) {
	b := &Body{ID: r.text()}
	text := r.text()
	b.Body = unsafe.Slice(unsafe.StringData(text), len(text))
	if !r.end() || r.version != Version {
		return nil, ErrMalformed
	}
	return b, nil
}

func decodeNotice(kind NoticeKind, r reader) (*Notice, error) {
	n := &Notice{Kind: kind}
	for r.ok && r.rest != "" {
		n.Texts = append(n.Texts, r.text())
	}
	if !r.ok || r.version != Version || !n.valid() {
		return nil, ErrMalformed
	}
	return n, nil
}

func (n *Notice) valid() bool {
	switch n.Kind {
	case PartStored, RequestStored, Echo:
		return true
	case Cancelled, Subscribed, Left, Moved:
		return len(n.Texts) == 1
	case ChunksRead:
		return len(n.Texts) == 2
	}
	return false
}

// reader reads the fields of a frame. After a mistake all reads are empty and ok is false.
type reader struct {
	rest    string
	ok      bool
	version byte
}

func newReader(f string) (kind byte, r reader) {
	if len(f) < 2 {
		return 0, reader{}
	}
	return f[0], reader{rest: f[2:], ok: true, version: f[1]}
}

// uvarint reads a number of at most 63 bits. The shortest form is the only one that is accepted.
func (r *reader) uvarint() uint64 {
	var n uint64
	for shift := 0; shift < 63 && len(r.rest) > 0; shift += 7 {
		b := r.rest[0]
		r.rest = r.rest[1:]
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			r.ok = r.ok && (b > 0 || shift == 0)
			return n
		}
	}
	r.ok = false
	return 0
}

func (r *reader) text() string {
	n := r.uvarint()
	if !r.ok || n > uint64(len(r.rest)) {
		r.ok = false
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// end reports whether the frame was well formed and has no bytes left.
func (r *reader) end() bool { return r.ok && r.rest == "" }

// cutHeader reads what the scripts write before a frame; head is its length.
func cutHeader(f string) (attempt int64, left time.Duration, size, head int, ok bool) {
	line, _, ok := strings.Cut(f[:min(len(f), 64)], "\n")
	first, second, two := strings.Cut(line, " ")
	second, third, three := strings.Cut(second, " ")
	attempt, a := parseDecimal(first)
	ms, l := parseDecimal(second)
	n, s := parseDecimal(third)
	if !ok || !two || !three || !a || !l || !s || ms > MaxTimeout.Milliseconds() || n > 1<<30 {
		return 0, 0, 0, 0, false
	}
	return attempt, time.Duration(ms) * time.Millisecond, int(n), len(line) + 1, true
}

// parseDecimal reads at most 12 digits, without a leading zero.
func parseDecimal(s string) (n int64, ok bool) {
	if len(s) == 0 || len(s) > 12 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int64(s[i]-'0')
	}
	return n, true
}
