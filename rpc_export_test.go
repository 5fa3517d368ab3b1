package luatomic

// Waiting counts what a bus keeps for calls that are not over.
func (b *Bus) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiters) + len(b.gathers) + len(b.works)
}

// Hears reports whether the node has heard its own word.
func (b *Bus) Hears() bool { return b.heard.Load() != 0 }
