// Package wire encodes, signs and decodes the frames that the callers and nodes of a bus send to each other. It has
// no state and sends nothing.
//
// The scripts pass frames on without reading them. Numbers are unsigned varints in their shortest form; a text or a
// body has its length before it.
//
//	request   'Q' 1 flags keep_ms id method body
//	answer    'R' 1 id body          failure   'E' 1 id code message
//	part      'r' 1 id node body     failure   'e' 1 id node code message
//	chunk     'C' 1 id seq body
//
// Notices are short frames without a body:
//
//	'N' 1 id...    replies are stored        'L' 1 id...  requests are stored for this node
//	'X' 1 id       a request is cancelled    'K' 1 id n   chunks up to n were read
//	'U' 1 node     a node subscribed anew    'D' 1 node   a node left
//	'P' 1          an echo: a node sends it to itself
//
// The scripts write a header before a request that they publish: the attempt, 0 where no reply is wanted, and the
// remaining time in ms, in decimal, as in "1 5000\n". The header is not signed.
//
// With keys, 16 bytes of HMAC-SHA256 over the name of the bus and the frame follow the frame.
package wire

import (
	"encoding/binary"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
)

const version = 1

// FlagStream in Request.Flags asks for the reply in chunks.
const FlagStream = 1

// MaxTimeout bounds the remaining time of a request, MaxKeep how long its reply may be kept. Decode refuses more.
const (
	MaxTimeout = 24 * time.Hour
	MaxKeep    = 30 * 24 * time.Hour
)

// A Frame is a *Request, *Answer, *Part, *Chunk or *Notice.
type Frame interface {
	// Encode returns the frame without its signature, and a request without its header.
	Encode() []byte
}

// Request asks a node to run a method.
type Request struct {
	ID, Method string
	Flags      uint64
	Keep       time.Duration // how long the reply stays; 0 means the default
	Body       []byte

	// Attempt and Left come from the header, or from the record of a request that is fetched.
	Attempt int64 // 0: no reply is wanted
	Left    time.Duration
}

// Failure is the outcome of a handler that failed.
type Failure struct{ Code, Message string }

// Answer is the outcome of a call: a body, or a failure.
type Answer struct {
	ID      string
	Body    []byte
	Failure *Failure
}

// Part is the answer of one node to a gather.
type Part struct {
	Node string
	Answer
}

// Chunk is one part of a streaming reply. Seq counts from 1.
type Chunk struct {
	ID   string
	Seq  uint64
	Body []byte
}

// NoticeKind says what a Notice reports, and with it what its texts are.
type NoticeKind byte

// The kinds of notices.
const (
	ReplyStored   NoticeKind = 'N' // ids of calls and gathers
	RequestStored NoticeKind = 'L' // ids of calls and gathers that this node should have
	Cancelled     NoticeKind = 'X' // the id of a request
	ChunksRead    NoticeKind = 'K' // the id of a request and the number of the last chunk read, in decimal
	Subscribed    NoticeKind = 'U' // a node
	Left          NoticeKind = 'D' // a node
	Echo          NoticeKind = 'P' // nothing
)

// Notice reports that something happened, without a body. It may be lost.
type Notice struct {
	Kind  NoticeKind
	Texts []string
}

// Encode returns the frame without its header.
func (q *Request) Encode() []byte {
	f := make([]byte, 0, 32+len(q.ID)+len(q.Method)+len(q.Body)+macSize)
	f = append(f, 'Q', version)
	f = binary.AppendUvarint(f, q.Flags)
	f = binary.AppendUvarint(f, uint64(clock.CeilMilli(q.Keep)))
	return appendText(appendText(appendText(f, q.ID), q.Method), q.Body)
}

// Encode returns the frame.
func (a *Answer) Encode() []byte {
	if a.Failure != nil {
		return a.appendOutcome(appendText(a.begin('E', 0), a.ID))
	}
	return a.appendOutcome(appendText(a.begin('R', 0), a.ID))
}

// Encode returns the frame.
func (p *Part) Encode() []byte {
	kind := byte('r')
	if p.Failure != nil {
		kind = 'e'
	}
	f := appendText(p.begin(kind, len(p.Node)), p.ID)
	return p.appendOutcome(appendText(f, p.Node))
}

func (a *Answer) begin(kind byte, extra int) []byte {
	size := 16 + extra + len(a.ID) + len(a.Body) + macSize
	if a.Failure != nil {
		size += len(a.Failure.Code) + len(a.Failure.Message)
	}
	return append(make([]byte, 0, size), kind, version)
}

func (a *Answer) appendOutcome(f []byte) []byte {
	if a.Failure != nil {
		return appendText(appendText(f, a.Failure.Code), a.Failure.Message)
	}
	return appendText(f, a.Body)
}

// Encode returns the frame.
func (c *Chunk) Encode() []byte {
	f := append(make([]byte, 0, 24+len(c.ID)+len(c.Body)+macSize), 'C', version)
	return appendText(binary.AppendUvarint(appendText(f, c.ID), c.Seq), c.Body)
}

// Encode returns the frame.
func (n *Notice) Encode() []byte {
	f := []byte{byte(n.Kind), version}
	for _, t := range n.Texts {
		f = appendText(f, t)
	}
	return f
}

func appendText[T string | []byte](f []byte, s T) []byte {
	return append(binary.AppendUvarint(f, uint64(len(s))), s...)
}
