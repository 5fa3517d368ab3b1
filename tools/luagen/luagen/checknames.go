package luagen

import (
	"fmt"
	"strings"
)

// checkNames reports Go identifiers that two declarations would both make.
func checkNames(scripts []*Script) Diagnostics {
	var diags Diagnostics
	owners, guards := map[string]string{}, map[*Script]bool{}
	for _, s := range scripts {
		e := emitter{Script: s, target: target{beside: true}}
		claim := func(name string, pos Pos, what string) {
			if owner, taken := owners[name]; taken {
				cure := "rename one of them"
				if !strings.Contains(name, ".") {
					cure += "; ---@script Name sets the Go name of a script"
				}
				diags = append(diags, Diagnostic{s.File, pos, 1, "H010",
					fmt.Sprintf("%s makes the Go name %s, which %s makes too", what, name, owner), cure})
				return
			}
			owners[name] = what + " of " + s.File
		}
		if !s.partial {
			e.claim(claim)
			e.claimFields(claim)
		}
		if g := s.guardFile; g != nil && !guards[g] {
			guards[g] = true
			claim(g.GoName, s.GuardPos, "the guard "+g.File)
			claim(lowerFirst(g.GoName)+"Source", s.GuardPos, "the guard "+g.File)
		}
	}
	return diags
}

type claimFunc func(name string, pos Pos, what string)

// claim names every package-level identifier of the script's file, unexported ones too.
func (e *emitter) claim(claim claimFunc) {
	top, name := Pos{1, 1}, e.GoName
	for _, id := range []string{name, name + "In", name + "SHA", name + "Script", name + "Params", "decode" + name,
		lowerFirst(name) + "Source"} {
		claim(id, top, "the script")
	}
	if e.Guard != "" {
		claim(name+"GuardedSHA", e.GuardPos, "@guard")
	}
	for _, c := range e.Errors {
		claim(e.errorVar(c), c.Pos, "@error "+c.Name)
	}
	for _, en := range e.enums() {
		claim(en.goType, en.pos, "the enum "+en.name)
		for _, v := range en.values {
			claim(en.goType+camel(v.Name), v.Pos, "the enum value "+v.Name)
		}
	}
	for _, en := range e.replyEnums() {
		claim("decode"+en.goType, en.pos, "the enum "+en.name)
	}
	for _, st := range e.structs() {
		claim(st.goType, st.pos, st.what)
	}
}

// claimFields checks the fields within each struct.
func (e *emitter) claimFields(claim claimFunc) {
	for _, p := range e.params() {
		claim(e.GoName+"Params."+p.goName, p.pos, "the parameter "+p.name)
	}
	for _, st := range e.structs() {
		for _, f := range st.fields {
			claim(st.goType+"."+camel(f.Name), f.Pos, "the field "+f.Name)
		}
	}
}
