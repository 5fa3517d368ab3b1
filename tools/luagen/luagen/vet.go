package luagen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// Vetted is one file that was read, and what was found in it.
type Vetted struct {
	File    string
	Source  string
	Scripts int // how many scripts the file has
	Skipped int // texts that something else completes: with places to fill in, or joined of more than literals
	Foreign int // texts found below a folder that name nothing of Redis
	Found   Diagnostics
}

// VetOptions says what VetPaths reads, and what it takes for known.
type VetOptions struct {
	Targets []string // where the scripts have to run, see TargetNames; none for no such rule
	Exclude []string // files and folders below a named folder: patterns of path.Match, of the name or the whole path
	Globals []string // names that a program puts before the scripts
}

// Check reports a target that is none, and a pattern that path.Match does not read.
func (o VetOptions) Check() error {
	for _, glob := range o.Exclude {
		if _, err := path.Match(glob, ""); err != nil {
			return fmt.Errorf("exclude: %q is no pattern of names: write it as in *_spec.lua or test/*", glob)
		}
	}
	return CheckTargets(o.Targets)
}

// VetPaths judges files and folders: scripts with and without a header, and the scripts in string literals of Go files.
// Folders are read with all below them, but for hidden ones, vendor and node_modules. A .lua file below a folder that
// has no header and names nothing of Redis is that of another program: it is counted, not judged. The result is sorted
// by file.
func VetPaths(paths []string, o VetOptions) ([]Vetted, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	var files []string
	named := map[string]bool{} // by its own name: judged whatever it holds
	for _, file := range paths {
		found, err := scriptFiles(file, o.Exclude...)
		if err != nil {
			return nil, fmt.Errorf("luagen: %w", err)
		}
		files = append(files, found...)
		named[file] = true
	}
	slices.Sort(files)
	files = slices.Compact(files)
	sources := make([]Source, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("luagen: %w", noTarget(file, err))
		}
		sources[i] = Source{file, string(text)}
	}
	return vetSources(sources, o, func(file string) bool { return !named[file] }), nil
}

// VetSources is VetPaths of files that are read already, each as if it were named. Those without a script are left out.
func VetSources(files []Source, targets []string) []Vetted {
	return vetSources(files, VetOptions{Targets: targets}, func(string) bool { return false })
}

// vetSources judges files. Those that were only met below a folder may be no scripts for Redis.
func vetSources(files []Source, o VetOptions, met func(file string) bool) []Vetted {
	units := make([][]unit, len(files))
	out := make([]Vetted, len(files))
	tops, x := declarers{}, newExpander()
	given, onDisk := map[string]string{}, x.read
	for _, src := range files {
		given[filepath.Clean(src.File)] = src.Text
	}
	x.read = func(file string) (string, bool) {
		if text, ok := given[filepath.Clean(file)]; ok {
			return text, true
		}
		return onDisk(file)
	}
	for _, name := range o.Globals {
		tops[name] = []string{""}
	}
	texts := make([]Runnable, len(files))
	for i, src := range files {
		if texts[i] = (Runnable{File: src.File, Text: src.Text}); hasUse(src) {
			texts[i] = x.runnable(src)
		}
	}
	for i, src := range files {
		out[i] = Vetted{File: src.File, Source: src.Text}
		if x.used[filepath.Clean(src.File)] || isPart(src.File) && hasFragments(src.Text) {
			continue // judged in each script that has it
		}
		var err error
		if units[i], out[i].Skipped, err = unitsOf(src.File, texts[i].Text); err != nil {
			out[i].Found = Diagnostics{unread(src.File, err)}
		}
		for _, u := range units[i] {
			tops.add(src.File, u.script)
		}
	}
	for i := range out {
		for _, u := range units[i] {
			if u.at.Text == "" && met(out[i].File) && u.script.isForeign() {
				out[i].Foreign++
				continue
			}
			out[i].vet(u, o.Targets, tops)
		}
	}
	return x.placed(out, texts)
}

// hasUse reports whether a script has a fragment. What begins so in a script of another tool is a comment.
func hasUse(src Source) bool {
	if !strings.HasSuffix(src.File, ".lua") || isPart(src.File) {
		return false
	}
	for line := range strings.Lines(src.Text) {
		if m := markerIn(strings.TrimSuffix(line, "\n")); m.found && (m.name() != "" || hasHeader(src.Text)) {
			return true
		}
	}
	return false
}

// isPart reports whether a file lies in a folder of fragments.
func isPart(file string) bool { return filepath.Base(filepath.Dir(file)) == partDir }

// placed gives the findings their places in the sources: what is found in a fragment is a finding of its file, once.
func (x *expander) placed(files []Vetted, texts []Runnable) []Vetted {
	scripts, byFile := map[string]Runnable{}, map[string]int{}
	all := x.found
	for i := range files {
		byFile[files[i].File], scripts[files[i].File] = i, texts[i]
		all = append(all, files[i].Found...)
		files[i].Found = nil
	}
	for _, d := range located(all, scripts) {
		i, ok := byFile[d.File]
		if !ok {
			text, _ := x.read(d.File)
			i = len(files)
			byFile[d.File], files = i, append(files, Vetted{File: d.File, Source: text})
		}
		files[i].Found = append(files[i].Found, d)
	}
	for i := range files {
		files[i].Found = files[i].Found.sorted()
	}
	slices.SortStableFunc(files, func(a, b Vetted) int { return strings.Compare(a.File, b.File) })
	return slices.DeleteFunc(files, func(v Vetted) bool { return v.Scripts+v.Skipped+v.Foreign+len(v.Found) == 0 })
}

// unit is one script of a file.
type unit struct {
	script *Script
	found  Diagnostics // of the parse
	at     GoScript    // in a Go file
}

// unitsOf are the scripts of a file, and how many others something else completes.
func unitsOf(file, text string) (units []unit, joined int, err error) {
	if !strings.HasSuffix(file, ".go") {
		s, found := parseAny(file, text)
		return []unit{{script: s, found: found}}, 0, nil
	}
	scripts, joined, err := goScripts(file, text)
	for _, lit := range scripts {
		s, found := parseAny(file, lit.Text)
		units = append(units, unit{s, found, lit})
	}
	return units, joined, err
}

// vet judges one script of the file. A text that does not parse, and has places for another tool to fill in, is none
// yet.
func (v *Vetted) vet(u unit, targets []string, tops declarers) {
	if u.script.isTemplate() {
		v.Skipped++
		return
	}
	v.Scripts++
	u.script.targets, u.script.elsewhere = targets, tops.besides(v.File)
	for _, d := range append(u.found, u.script.judge()...) {
		if u.at.Text != "" {
			d.Pos, d.Message, d.Cure = u.at.place(d.Pos), u.at.lines(d.Message), u.at.lines(d.Cure)
		}
		v.Found = append(v.Found, d)
	}
}

// isTemplate reports a text that another tool completes.
func (s *Script) isTemplate() bool {
	return s.Body == nil && s.bare && placeholders.MatchString(literals.ReplaceAllString(s.Source, ""))
}

// isForeign reports a script that uses none of redis, server, KEYS and ARGV. Where the script does not parse, isForeign
// searches its text for these words.
func (s *Script) isForeign() bool {
	switch {
	case !s.bare || s.isTemplate():
		return false
	case s.Body == nil:
		return !redisWords.MatchString(s.Source)
	}
	return !slices.ContainsFunc(s.Body.Globals, func(g luaast.Global) bool {
		return !g.Write && redisNames[g.Name.Name]
	})
}

// redisNames are the globals that a server alone gives a script, one of which each script for it reads.
var (
	redisNames = map[string]bool{"KEYS": true, "ARGV": true, "redis": true, otherRedis: true}
	redisWords = regexp.MustCompile(`\b(KEYS|ARGV|(redis|server)\s*\.\s*p?call)\b`)
)

// placeholders are those of ERB, Go templates and formats. Inside literals and comments they hinder no parse.
var (
	placeholders = regexp.MustCompile(`<%|\{\{|%[sdvq]|\$\{`)
	erbTags      = regexp.MustCompile(`(?s:<%.*?%>)`)
	literals     = regexp.MustCompile(`(?s:(?:--)?\[\[.*?\]\])|--[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"`)
)

// declarers lists the files of a run that declare a name at their top. Programs that put files together before they
// send them name in one what another declares.
type declarers map[string][]string

// add lists what a script declares, of a template what it declares outside of its tags.
func (d declarers) add(file string, s *Script) {
	if s.Body == nil && s.bare {
		s, _ = parseAny(file, erbTags.ReplaceAllString(s.Source, ""))
	}
	if s.Body == nil || !s.bare {
		return
	}
	for _, stmt := range s.Body.Body {
		switch stmt := stmt.(type) {
		case *luaast.Local:
			for _, v := range stmt.Vars {
				d[v.Name] = append(d[v.Name], file)
			}
		case *luaast.FuncStmt:
			if name := library(stmt.Target); name != "" {
				d[name] = append(d[name], file)
			}
		case *luaast.LocalFunc:
			d[stmt.Var.Name] = append(d[stmt.Var.Name], file)
		}
	}
	for _, g := range s.Body.Globals {
		if g.Write {
			d[g.Name.Name] = append(d[g.Name.Name], file)
		}
	}
}

// besides tells whether another file than this one declares a name.
func (d declarers) besides(file string) func(name string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(d[name], func(f string) bool { return f != file })
	}
}

// noTarget adds the cure to the error of a link that leads nowhere.
func noTarget(file string, err error) error {
	if info, e := os.Lstat(file); e == nil && info.Mode()&fs.ModeSymlink != 0 && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%q is a link to a file that does not exist: remove it: %w", file, fs.ErrNotExist)
	}
	return err
}

// ScriptFiles lists the .lua files of a folder and below that have a header, without those of tests and fragments.
func ScriptFiles(dir string) ([]string, error) {
	all, err := scriptFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("luagen: %w", err)
	}
	var files []string
	for _, file := range all {
		if !strings.HasSuffix(file, ".lua") || strings.Contains(filepath.ToSlash(file), "/testdata/") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("luagen: %w", noTarget(file, err))
		}
		if hasHeader(string(text)) {
			files = append(files, file)
		}
	}
	return files, nil
}

// below is the folder that a pattern of the go command names with all below it, as a folder is read here.
func below(file string) string {
	if file == "..." {
		return "."
	}
	return strings.TrimSuffix(file, "/...")
}

// isExcluded reports a file or folder whose name a pattern describes, or its path below the folder that was named.
func isExcluded(dir, at string, patterns []string) bool {
	rel, err := filepath.Rel(dir, at)
	return err == nil && slices.ContainsFunc(patterns, func(p string) bool {
		name, _ := path.Match(p, filepath.Base(at))
		whole, _ := path.Match(strings.Trim(p, "/"), filepath.ToSlash(rel))
		return name || whole
	})
}

// scriptFiles lists the .lua and .go files of a path, but for what the patterns exclude below a folder; a file that is
// named is taken whatever its name.
func scriptFiles(file string, exclude ...string) ([]string, error) {
	file = below(file)
	info, err := os.Stat(file)
	if err != nil {
		return nil, noTarget(file, err)
	}
	if !info.IsDir() {
		return []string{file}, nil
	}
	var files []string
	err = filepath.WalkDir(file, func(at string, e fs.DirEntry, err error) error {
		name := e.Name()
		switch {
		case err != nil:
			return err
		case e.IsDir() && at != file && (strings.HasPrefix(name, ".") || name == "vendor" || name == "node_modules"):
			return fs.SkipDir
		case at != file && isExcluded(file, at, exclude):
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir() || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".lua.go"):
		case strings.HasSuffix(name, ".lua") && isCopy(at):
		case strings.HasSuffix(name, ".lua"), strings.HasSuffix(name, ".go"):
			files = append(files, at)
		}
		return nil
	})
	return files, err
}
