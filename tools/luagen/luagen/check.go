package luagen

import "slices"

// Check compares the scripts with each other and each header with its body. The findings are sorted.
func Check(scripts []*Script) Diagnostics {
	diags := checkNames(scripts)
	for _, s := range scripts {
		diags = append(diags, s.judge()...)
	}
	return diags.sorted()
}

func (b *body) check() {
	b.checkGlobals()
	if b.partial {
		return
	}
	b.checkBindings()
	b.checkRowsOfMany()
	b.checkCommands()
	if b.bare {
		b.checkBareReply()
	} else {
		b.checkReply()
	}
	b.checkErrors()
	b.checkPcalls()
	b.checkCompare()
	b.checkKinds()
	b.checkArguments()
	b.checkWrites()
	b.checkLoops()
	b.checkPromises()
	b.checkLargeText()
	b.checkRoundNumbers()
	b.checkRoundTrips()
	b.checkSlots()
	b.checkClock()
	b.checkExpiry()
}

// allowed takes out what the script accepts with @allow, and reports an @allow that accepts nothing.
func (s *Script) allowed(found Diagnostics) Diagnostics {
	kept := slices.DeleteFunc(found, func(d Diagnostic) bool { return s.allows(d.Rule) })
	for _, a := range s.Allows {
		if !s.accepted[a.Rule] && a.Rule[0] != 'V' && s.Body != nil && !s.partial { // V is for luagen prove
			kept = append(kept, Diagnostic{s.File, a.Pos, len(a.Rule), "H009", "@allow " + a.Rule + " allows nothing",
				"the rule finds nothing here: remove the line"})
		}
	}
	return kept
}

// allows reports whether the header accepts findings of the rule, and notes that there was one.
func (s *Script) allows(rule string) bool {
	if !slices.ContainsFunc(s.Allows, func(a Allow) bool { return a.Rule == rule }) {
		return false
	}
	if s.accepted == nil {
		s.accepted = map[string]bool{}
	}
	s.accepted[rule] = true
	return true
}
