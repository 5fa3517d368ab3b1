// Package embedded runs an imitation of Redis inside the process, for the demo and for happy-path tests. Keys expire
// by real time, as on a server.
package embedded

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
)

// Server is an in-process imitation of a Redis server on a loopback port.
//
// Its clock advances in steps of 1 ms, up to 25 ms when many thousand keys expire. TIME and all expiry use that one
// clock, so they agree; both are late by up to a step. Step moves the clock forward or back.
type Server struct {
	redis     *miniredis.Miniredis
	mu        sync.Mutex    // held while the wall clock is read and the server's clock is set
	offset    time.Duration // from the wall clock
	closing   chan struct{}
	ticking   sync.WaitGroup
	closeOnce sync.Once
}

var errNarrow = errors.New("embedded server: the imitation of Redis cuts numbers to 32 bits on this system, times too: " +
	"use a real server")

// Start opens a loopback port and serves an empty database there until Close. On a 32-bit system it fails.
func Start() (*Server, error) {
	if strconv.IntSize < 64 {
		return nil, errNarrow // it replies with an int where a script returns a number
	}
	redis := miniredis.NewMiniRedis()
	// With the wall clock, miniredis visits every expiring key on every access; with a clock that is set, once a
	// step.
	redis.SetTime(time.Now())
	redis.ClockTTL(true)
	if err := redis.Start(); err != nil {
		return nil, fmt.Errorf("embedded server: %w", err)
	}
	// A server allows TIME in read-only scripts; the imitation refuses it. So read-only scripts run as ordinary ones.
	redis.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		verb, readOnly := strings.CutSuffix(strings.ToUpper(cmd), "_RO")
		if !readOnly || verb != "EVALSHA" && verb != "EVAL" {
			return false
		}
		redis.Server().Dispatch(c, append([]string{verb}, args...))
		return true
	})
	s := &Server{redis: redis, closing: make(chan struct{})}
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
	s.redis.SetTime(time.Now().Add(s.offset))
	// Any access applies the expiry that is due.
	s.redis.Exists("")
}

// tick sets the clock until Close.
func (s *Server) tick() {
	timer := time.NewTimer(minStep)
	defer timer.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-timer.C:
		}
		began := time.Now()
		s.set(0)
		timer.Reset(min(max(minStep, stepShare*time.Since(began)), maxStep))
	}
}
