package wire

import (
	"strings"
	"time"
)

// Decode checks and decodes what came over a channel: a request with its header, or any other frame. The frame that
// it returns encodes to the same bytes. It fails with ErrMalformed or ErrForged.
func Decode(payload string, s *Sealer) (Frame, error) {
	if payload != "" && payload[0] >= '0' && payload[0] <= '9' {
		attempt, left, frame, ok := cutHeader(payload)
		if !ok {
			return nil, ErrMalformed
		}
		return asFrame(DecodeRequest(frame, attempt, left, s))
	}
	frame, err := s.Open(payload)
	if err != nil {
		return nil, err
	}
	kind, r := newReader(frame)
	switch kind {
	case 'R', 'E':
		return asFrame(decodeAnswer(kind, r))
	case 'r', 'e':
		return asFrame(decodePart(kind, r))
	case 'C':
		return asFrame(decodeChunk(r))
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

// DecodeRequest checks and decodes a request that was stored without a header.
func DecodeRequest(frame string, attempt int64, left time.Duration, s *Sealer) (*Request, error) {
	frame, err := s.Open(frame)
	if err != nil {
		return nil, err
	}
	kind, r := newReader(frame)
	q := &Request{Attempt: attempt, Left: left, Flags: r.uvarint()}
	keep := r.uvarint()
	q.ID, q.Method = r.text(), r.text()
	q.Body = []byte(r.text())
	if kind != 'Q' || !r.end() || keep > uint64(MaxKeep.Milliseconds()) {
		return nil, ErrMalformed
	}
	q.Keep = time.Duration(keep) * time.Millisecond
	return q, nil
}

func decodeAnswer(kind byte, r reader) (*Answer, error) {
	a := &Answer{ID: r.text()}
	a.readOutcome(kind == 'E', &r)
	if !r.end() {
		return nil, ErrMalformed
	}
	return a, nil
}

func decodePart(kind byte, r reader) (*Part, error) {
	p := &Part{Answer: Answer{ID: r.text()}}
	p.Node = r.text()
	p.readOutcome(kind == 'e', &r)
	if !r.end() {
		return nil, ErrMalformed
	}
	return p, nil
}

func (a *Answer) readOutcome(failed bool, r *reader) {
	if failed {
		a.Failure = &Failure{Code: r.text(), Message: r.text()}
	} else {
		a.Body = []byte(r.text())
	}
}

func decodeChunk(r reader) (*Chunk, error) {
	c := &Chunk{ID: r.text(), Seq: r.uvarint()}
	c.Body = []byte(r.text())
	if !r.end() {
		return nil, ErrMalformed
	}
	return c, nil
}

func decodeNotice(kind NoticeKind, r reader) (*Notice, error) {
	n := &Notice{Kind: kind}
	for r.ok && r.rest != "" {
		n.Texts = append(n.Texts, r.text())
	}
	if !r.ok || !n.valid() {
		return nil, ErrMalformed
	}
	return n, nil
}

func (n *Notice) valid() bool {
	switch n.Kind {
	case ReplyStored, RequestStored, Echo:
		return true
	case Cancelled, Subscribed, Left:
		return len(n.Texts) == 1
	case ChunksRead:
		return len(n.Texts) == 2
	}
	return false
}

// reader reads the fields of a frame. After a mistake all reads are empty and ok is false.
type reader struct {
	rest string
	ok   bool
}

func newReader(f string) (kind byte, r reader) {
	if len(f) < 2 || f[1] != version {
		return 0, reader{}
	}
	return f[0], reader{rest: f[2:], ok: true}
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

// cutHeader reads what the scripts write before a request.
func cutHeader(f string) (attempt int64, left time.Duration, frame string, ok bool) {
	line, _, ok := strings.Cut(f[:min(len(f), 64)], "\n")
	first, second, two := strings.Cut(line, " ")
	attempt, a := parseDecimal(first)
	ms, l := parseDecimal(second)
	if !ok || !two || !a || !l || ms > MaxTimeout.Milliseconds() {
		return 0, 0, "", false
	}
	return attempt, time.Duration(ms) * time.Millisecond, f[len(line)+1:], true
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
