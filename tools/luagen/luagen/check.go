package luagen

import "slices"

// Check compares the scripts with each other and each header with its body. The findings are sorted.
func Check(scripts []*Script) Diagnostics {
	diags := checkNames(scripts)
	for _, s := range scripts {
		var found Diagnostics
		if s.Body != nil {
			newBody(s, &found).check()
		}
		diags = append(diags, s.allowed(found)...)
	}
	return diags.sorted()
}

func (b *body) check() {
	b.checkGlobals()
	if b.partial {
		return
	}
	b.checkBindings()
	b.checkCommands()
	b.checkReply()
	b.checkErrors()
	b.checkPcalls()
	b.checkCompare()
	b.checkWrites()
}

// allowable are the rules that can have good exceptions in one file.
var allowable = []string{"B001", "B002", "C001", "C003", "E003", "K001", "K005", "K007", "R002", "W002", "W003"}

// allowed takes out what the script accepts with @allow, and reports an @allow that accepts nothing.
func (s *Script) allowed(found Diagnostics) Diagnostics {
	used := map[string]bool{}
	kept := slices.DeleteFunc(found, func(d Diagnostic) bool {
		for _, a := range s.Allows {
			if a.Rule == d.Rule {
				used[a.Rule] = true
				return true
			}
		}
		return false
	})
	for _, a := range s.Allows {
		if !used[a.Rule] && s.Body != nil && !s.partial {
			kept = append(kept, Diagnostic{s.File, a.Pos, len(a.Rule), "H009", "@allow " + a.Rule + " allows nothing", "the rule finds nothing here: remove the line"})
		}
	}
	return kept
}
