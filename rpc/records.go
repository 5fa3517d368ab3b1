package rpc

import "slices"

// markStored records ids of streams of which a part was too large to be published.
func (p *pending) markStored(ids []string) {
	p.mu.Lock()
	p.stored = append(p.stored, ids...)
	p.mu.Unlock()
	offer(p.arrived)
}

// takeStored returns the ids that were noted and still wait.
func (p *pending) takeStored() (calls []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := p.stored
	p.stored = nil
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if p.calls[id] != nil {
			calls = append(calls, id)
		}
	}
	return calls
}

// maxFinished bounds the records that wait to be removed. Further records expire.
const maxFinished = 20_000

// enoughFinished is how many records are removed in one command.
const enoughFinished = 100

// discard stores the keys of records that are no longer needed. It reports whether there are enough to remove them now.
func (p *pending) discard(keys ...string) (enough bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.finished) < maxFinished {
		p.finished = append(p.finished, keys...)
	}
	return len(p.finished) >= enoughFinished
}

// takeFinished removes at most n records from the front.
func (p *pending) takeFinished(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = min(n, len(p.finished))
	records := p.finished[:n:n]
	p.finished = p.finished[n:]
	if len(p.finished) == 0 {
		p.finished = nil
	}
	return records
}
