package lease

import (
	"crypto/rand"
	"strconv"
	"sync/atomic"
)

// Tokens makes the names of the leases of a process: <process>.<number>. It is safe for concurrent use.
type Tokens struct {
	process string
	last    atomic.Int64
}

// NewTokens returns the tokens of a process under a new name of 80 random bits.
func NewTokens() *Tokens { return &Tokens{process: rand.Text()[:16]} }

// Process returns the name of the process.
func (t *Tokens) Process() string { return t.process }

// Next returns a token that names no other lease.
func (t *Tokens) Next() string { return t.process + "." + strconv.FormatInt(t.last.Add(1), 36) }
