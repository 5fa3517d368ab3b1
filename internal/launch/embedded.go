package launch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

const (
	// minStep is the resolution of the clock while few keys expire.
	minStep = time.Millisecond
	// maxStep is the coarsest resolution.
	maxStep = 25 * time.Millisecond
	// stepShare keeps the work of a step, which visits every key with a TTL, under a tenth of the time.
	stepShare = 10
	// few keys cost nothing to visit: where steps are slow, the machine is busy.
	few = 1000
)

// Server is an in-process imitation of a Redis server on a loopback port.
//
// Its clock advances in steps of 1 ms, up to 25 ms when many thousand keys expire. TIME and all expiry use that one
// clock, so they agree; both are late by up to a step. While few keys
// expire, no two scripts see the same time, as on a server, where a script takes longer than a microsecond. Step moves
// the clock forward or back.
type Server struct {
	redis     *miniredis.Miniredis
	mu        sync.Mutex    // held while the wall clock is read and the server's clock is set
	offset    time.Duration // from the wall clock
	now       time.Time     // the server's clock
	crowded   bool          // many keys expire
	closing   chan struct{}
	ticking   sync.WaitGroup
	closeOnce sync.Once
}

var errNarrow = errors.New("embedded server: the imitation of Redis cuts numbers to 32 bits on this system, " +
	"times too: use a real server")

// StartEmbedded opens a loopback port and serves an empty database there until Close. On a 32-bit system it fails.
func StartEmbedded() (*Server, error) {
	if strconv.IntSize < 64 {
		return nil, errNarrow // it replies with an int where a script returns a number
	}
	redis := miniredis.NewMiniRedis()
	// With the wall clock, miniredis visits every expiring key on every access; with a clock that is set, once a
	// step.
	s := &Server{redis: redis, closing: make(chan struct{}), now: time.Now()}
	redis.SetTime(s.now)
	redis.ClockTTL(true)
	if err := redis.Start(); err != nil {
		return nil, fmt.Errorf("embedded server: %w", err)
	}
	// A server allows TIME in read-only scripts; the imitation refuses it. So read-only scripts run as ordinary ones.
	srv := redis.Server() // none after Close, which does not wait for commands under way
	srv.SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		verb, readOnly := strings.CutSuffix(strings.ToUpper(cmd), "_RO")
		if verb != "EVALSHA" && verb != "EVAL" {
			return false
		}
		s.advance()
		if !readOnly {
			return false
		}
		srv.Dispatch(c, append([]string{verb}, args...))
		return true
	})
	s.ticking.Go(s.tick)
	return s, nil
}

// Addr returns the server's host:port.
func (s *Server) Addr() string { return s.redis.Addr() }

// URL returns the server's redis:// URL.
func (s *Server) URL() string { return "redis://" + s.redis.Addr() }

// Close ends the server, its connections and its clock, and waits for them. A second call does nothing.
func (s *Server) Close() {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.ticking.Wait()
		s.redis.Close()
	})
}

// Step moves the clock forward by d, or back. Later commands use the new time.
func (s *Server) Step(d time.Duration) {
	s.set(d)
}

// set sets the clock to the wall clock's time plus all steps, including d. The lock is held from the read to the set:
// otherwise a tick that read the clock before a step would undo the step.
func (s *Server) set(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset += d
	if wall := time.Now().Add(s.offset); d != 0 || wall.After(s.now) {
		s.now = wall
	}
	s.redis.SetTime(s.now)
	// Any access applies the expiry that is due.
	s.redis.Exists("")
}

// advance is the time that a script takes.
func (s *Server) advance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crowded {
		return // each new time has the imitation visit them all
	}
	s.now = s.now.Add(time.Microsecond)
	s.redis.SetTime(s.now)
}

// tick sets the clock until Close.
func (s *Server) tick() {
	timer := time.NewTimer(minStep)
	defer timer.Stop()
	slow := 0
	for {
		select {
		case <-s.closing:
			return
		case <-timer.C:
		}
		began := time.Now()
		s.set(0)
		if time.Since(began) > minStep {
			slow++
		} else {
			slow = 0
		}
		crowded := slow >= 3 && len(s.redis.Keys()) > few
		s.mu.Lock()
		s.crowded = crowded
		s.mu.Unlock()
		timer.Reset(min(max(minStep, stepShare*time.Since(began)), maxStep))
	}
}
