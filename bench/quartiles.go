package main

import (
	"fmt"
	"math"
	"slices"
)

// quartiles are the middle of samples, and what half of them lie between.
type quartiles struct{ low, median, high float64 }

// quartilesOf interpolates between neighbours. Of no samples they are no numbers.
func quartilesOf(samples []float64) quartiles {
	sorted := slices.Sorted(slices.Values(samples))
	at := func(q float64) float64 {
		if len(sorted) == 0 {
			return math.NaN()
		}
		place := q * float64(len(sorted)-1)
		i := int(place)
		if i+1 == len(sorted) {
			return sorted[i]
		}
		return sorted[i] + (place-float64(i))*(sorted[i+1]-sorted[i])
	}
	return quartiles{at(0.25), at(0.5), at(0.75)}
}

// text is such as 1.12 [1.08 1.17].
func (q quartiles) text() string {
	return fmt.Sprintf("%s [%s %s]", human(q.median), human(q.low), human(q.high))
}

func (e *entrants) quartiles(metric string) quartiles { return quartilesOf(e.Metrics[metric]) }

func (e *entrants) median(metric string) (value float64, ok bool) {
	value = e.quartiles(metric).median
	return value, !math.IsNaN(value)
}

// fewRounds are too few to tell a quarter of them from a chance.
const fewRounds = 8

// spreadOf is the distance of the quartiles, as a part of the median; of few samples, that of the least and the
// greatest.
func spreadOf(samples []float64) float64 {
	q := quartilesOf(samples)
	if math.IsNaN(q.median) || q.median == 0 {
		return 0
	}
	if len(samples) < fewRounds {
		return (slices.Max(samples) - slices.Min(samples)) / q.median
	}
	return (q.high - q.low) / q.median
}

// ahead are the ratios by round of e to the best entrant of a kind, which is that of the best median. Above 1, e is
// ahead.
func ahead(m *measured, e *entrants, of kind) (ratios []float64) {
	other := best(m, of)
	if other == nil {
		return nil
	}
	mine, its := e.Metrics[m.Main], other.Metrics[m.Main]
	for round := range min(len(mine), len(its)) {
		a, b := mine[round], its[round]
		if !units[m.Main].more {
			a, b = b, a
		}
		if a != 0 && b != 0 {
			ratios = append(ratios, a/b)
		}
	}
	return ratios
}

// best is the best entrant of a kind that is compared with, nil where there is none.
func best(m *measured, of kind) (found *entrants) {
	var most float64
	for i := range m.Entrants {
		other := &m.Entrants[i]
		value, has := other.median(m.Main)
		if other.Kind != of || !has || other.Name == noTwin {
			continue
		}
		if found == nil || units[m.Main].more == (value > most) {
			found, most = other, value
		}
	}
	return found
}
