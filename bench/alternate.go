package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/google/uuid"
)

// measureRow runs the rounds of a row: of each round, every entrant has one slot. All entrants are open from the first
// round to the last, so that none pays for a start, and a busy second of the machine falls on neighbours.
func (b *bench) measureRow(r contest, add func(round int, e entrant, m metrics)) (err error) {
	own, span, rounds := make([]*bench, len(r.entrants)), b.opts.Slot, b.opts.Rounds
	if r.slot > 0 && !b.opts.Quick {
		span = r.slot
	}
	if r.apart != "" {
		span, rounds = b.opts.Span, b.opts.Whole
	}
	defer func() { err = errors.Join(err, leave(own...)) }()
	works := make([]work, len(r.entrants))
	for i, e := range r.entrants {
		if own[i] = b.enter(); r.apart != "" {
			continue
		}
		if works[i], err = e.warm(own[i], span); err != nil {
			return err
		}
	}
	for round := range rounds {
		for _, i := range order(round, len(r.entrants)) {
			if err := b.ctx.Err(); err != nil {
				return err
			}
			if r.apart != "" {
				if works[i], err = r.entrants[i].open(own[i]); err != nil {
					return fmt.Errorf("%s: %w", r.entrants[i].name, err)
				}
			}
			runtime.GC() // the garbage of the one before
			m, err := works[i](span)
			if err != nil {
				return fmt.Errorf("%s: %w", r.entrants[i].name, err)
			}
			add(round, r.entrants[i], m)
			if r.apart != "" {
				if err := leave(own[i]); err != nil {
					return err
				}
				own[i] = b.enter()
			}
		}
	}
	return nil
}

// order is who runs when in a round. Each round begins with another entrant, so that none always has the same one
// before it, nor the first place.
func order(round, entrants int) []int {
	all := make([]int, entrants)
	for i := range all {
		all[i] = (round + i) % entrants
		if round/entrants%2 == 1 { // the other way round, so that each has each neighbour
			all[i] = (round + entrants - i) % entrants
		}
	}
	return all
}

// warm opens the work and does it once.
func (e entrant) warm(b *bench, span time.Duration) (work, error) {
	w, err := e.open(b)
	if err == nil {
		_, err = w(span)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	return w, nil
}

// enter is the bench of one entrant, whose keys have a name of their own.
func (b *bench) enter() *bench {
	own := *b
	own.space, own.closers = "bench-"+uuid.NewString()[:8], nil
	return &own
}

// leave closes what entrants have opened, and then removes what they stored. Those that did not enter are nil.
func leave(own ...*bench) (err error) {
	own = slices.DeleteFunc(own, func(b *bench) bool { return b == nil })
	for _, b := range own {
		b.end()
	}
	for _, b := range own {
		err = errors.Join(err, b.clean())
	}
	return err
}
