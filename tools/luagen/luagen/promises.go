package luagen

// checkPromises holds the body against what the header says of repeats, of errors half-way and of units.
func (b *body) checkPromises() {
	if b.bare {
		return
	}
	if b.Retry.Word == "safe" {
		b.checkRepeats()
	}
	b.checkContract()
	b.checkUnits()
}
