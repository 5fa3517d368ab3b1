package luagen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// File is one file of the output. A nil Text means the file is stale and goes.
type File struct {
	Path string // under Config.Out or Config.Scripts, as given
	Text []byte
}

// Result is the outcome of a run. Where it found an error, or under Config.Strict anything, there are no changes.
type Result struct {
	Changes []File
	Found   Diagnostics
	Sources map[string]string // text by file below Config.Scripts, for Diagnostic.Format; fragments as part/name.lua
}

// Generate loads, puts in fragments, parses, checks and prints, and compares with the disk. It writes nothing.
func Generate(cfg Config) (Result, error) {
	res := Result{Sources: map[string]string{}}
	if err := CheckTargets(cfg.Targets); err != nil {
		return res, err
	}
	sources, err := cfg.sources()
	if err != nil {
		return res, err
	}
	t, err := cfg.resolve()
	if len(sources) == 0 {
		return cfg.withoutScripts(res, t)
	}
	if err != nil {
		return res, err
	}
	x := newExpander()
	texts := res.expandAll(sources, x, cfg)
	if len(x.found) > 0 {
		res.Found = cfg.below(x.found).sorted()
		return res, nil // what the scripts are is in doubt
	}
	scripts, guards := res.parseAll(texts, cfg)
	if cfg.Calls {
		res.Found = append(res.Found, checkCalls(scripts)...)
	}
	res.Found = append(res.Found, cfg.below(x.unused(cfg.fragmentsOf()))...).sorted()
	if cfg.Stops(res.Found) {
		return res, nil
	}
	files, err := emitAll(scripts, guards, cfg, t)
	if err != nil {
		return res, err
	}
	if clashes := checkHandwritten(files, scripts, t); len(clashes) > 0 {
		res.Found = append(res.Found, clashes...).sorted()
		return res, nil
	}
	res.Changes, err = changes(append(cfg.luaFiles(texts), files...), cfg, t)
	return res, err
}

// withoutScripts is the run whose last script is gone: what was made from it is stale.
func (c Config) withoutScripts(res Result, t target) (Result, error) {
	if res.Changes = staleFiles(c, t, nil); len(res.Changes) == 0 {
		return res, fmt.Errorf("luagen: %w in %q: write one there, or name another folder with -scripts",
			errNoScripts, c.Scripts)
	}
	return res, nil
}

// Stops reports whether nothing is written after these findings.
func (c Config) Stops(found Diagnostics) bool { return found.HasErrors() || c.Strict && len(found) > 0 }

// fragmentsOf is the folder of the scripts that may have fragments.
func (c Config) fragmentsOf() string {
	if samePath(c.Scripts, c.Out) {
		return filepath.Join(c.Scripts, srcDir)
	}
	return c.Scripts
}

// below names the files of findings by their paths below the scripts' folder.
func (c Config) below(found Diagnostics) Diagnostics {
	for i, d := range found {
		found[i].File = c.rel(d.File)
	}
	return found
}

func (c Config) rel(file string) string {
	if rel, err := filepath.Rel(c.Scripts, file); err == nil {
		return filepath.ToSlash(rel)
	}
	return filepath.ToSlash(file)
}

// expandAll puts the fragments into the scripts. One that is embedded as it lies on the disk has none.
func (res *Result) expandAll(sources []Source, x *expander, cfg Config) []Runnable {
	read := x.read
	x.read = func(file string) (string, bool) {
		text, ok := read(file)
		if ok {
			res.Sources[cfg.rel(file)] = text
		}
		return text, ok
	}
	texts := make([]Runnable, len(sources))
	for i, src := range sources {
		res.Sources[cfg.rel(src.File)] = src.Text
		if cfg.embedsAsIs(src.File) {
			texts[i] = Runnable{File: src.File, Text: src.Text}
			x.refuse(src)
			continue
		}
		texts[i] = x.runnable(src)
	}
	return texts
}

// embedsAsIs reports whether a source is the file that Go embeds.
func (c Config) embedsAsIs(file string) bool {
	return samePath(filepath.Dir(file), c.Out)
}

// luaFiles are the texts that Go embeds, where these are no sources.
func (c Config) luaFiles(texts []Runnable) (files []File) {
	for _, r := range texts {
		if !c.embedsAsIs(r.File) {
			files = append(files, File{filepath.Join(c.Out, filepath.Base(r.File)), []byte(r.Text)})
		}
	}
	return files
}

// parseAll reads and checks the scripts and their guards.
func (res *Result) parseAll(texts []Runnable, cfg Config) (scripts, guards []*Script) {
	all := make([]*Script, len(texts))
	byFile, read := map[string]Runnable{}, map[*Script]Diagnostics{}
	for i, r := range texts {
		s, diags := Parse(filepath.Base(r.File), r.Text)
		if s.targets = cfg.Targets; !cfg.embedsAsIs(r.File) {
			s.origin, s.from = originOf(r.File), r.origins()
		}
		all[i], byFile[s.File], read[s] = s, r, diags
	}
	scripts, guards, found := splitGuards(all)
	for _, s := range scripts {
		found = append(found, read[s]...)
	}
	for _, g := range guards {
		// What Parse says of a header goes: a guard has none.
		found = append(found, slices.DeleteFunc(read[g], ofHeader)...)
		found = append(found, checkGuard(g)...)
	}
	res.Found = cfg.below(located(append(found, Check(scripts)...).sorted(), byFile))
	return scripts, guards
}

// located gives findings their place on the disk: those inside a fragment that of the fragment, once for all scripts.
func located(found Diagnostics, scripts map[string]Runnable) Diagnostics {
	seen := map[Diagnostic]bool{}
	var out Diagnostics
	for _, d := range found {
		r, ok := scripts[d.File]
		if !ok {
			out = append(out, d)
			continue
		}
		in := d
		if d.File = r.File; r.from != nil {
			d = r.locate(d)
		}
		if in.File = d.File; d.File != r.File {
			in.Pos = d.Pos
			if seen[in] {
				continue
			}
			seen[in] = true
		}
		out = append(out, d)
	}
	return out.sorted()
}

// ofHeader reports a finding about a header that says nothing, or something wrong.
func ofHeader(d Diagnostic) bool { return d.Rule != "H001" && d.Rule != "S001" }

func emitAll(scripts, guards []*Script, cfg Config, t target) ([]File, error) {
	files, err := guardFiles(guards, cfg, t)
	if err != nil {
		return nil, err
	}
	if cfg.Calls {
		text, err := emitCalls(scripts, t)
		if err != nil {
			return nil, err
		}
		files = append(files, File{filepath.Join(cfg.Out, callsFile), text})
	}
	for _, s := range scripts {
		text, err := emitScript(s, t)
		if err != nil {
			return nil, err
		}
		files = append(files, File{filepath.Join(cfg.Out, s.File+".go"), text})
	}
	return files, nil
}

// changes keeps the files whose bytes differ, and adds stale ones.
func changes(files []File, cfg Config, t target) ([]File, error) {
	var out []File
	keep := map[string]bool{}
	for _, f := range files {
		keep[f.Path] = true
		have, err := os.ReadFile(f.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			out = append(out, f)
		case err != nil:
			return nil, fmt.Errorf("luagen: %w", err)
		case !sameLines(f, string(have)):
			if !isGenerated(string(have)) && !t.wrote(f.Path, string(have)) {
				return nil, fmt.Errorf("luagen: %q is in the way and was not generated by luagen: move it", f.Path)
			}
			if !strings.HasSuffix(f.Path, ".lua") && !t.owns(f.Path, string(have)) {
				return nil, fmt.Errorf("luagen: %q was made from another folder of scripts: "+
					"rename the script, give one folder another -out, or delete the file if that folder is gone",
					f.Path)
			}
			out = append(out, f)
		}
	}
	return append(out, staleFiles(cfg, t, keep)...), nil
}

// sameLines reports that the disk has the text of a file. Go may have other line ends there: git gives it those of the
// system at checkout, and a compiler reads both. The bytes of a script are its digest.
func sameLines(f File, have string) bool {
	if strings.HasSuffix(f.Path, ".go") {
		have = strings.ReplaceAll(have, "\r\n", "\n")
	}
	return have == string(f.Text)
}

// staleFiles are generated files whose script is gone. Only a file that starts with luagen's own header counts, of a
// script without fragments one whose Go does, and of the Go files one that was made from this folder of scripts:
// another may share the folder of the Go.
func staleFiles(cfg Config, t target, keep map[string]bool) []File {
	var out []File
	for _, file := range append(filesIn(cfg.Out, ".lua.go"), filepath.Join(cfg.Out, callsFile)) {
		text, err := os.ReadFile(file)
		if !keep[file] && err == nil && isGenerated(string(text)) && t.owns(file, string(text)) {
			out = append(out, File{Path: file})
		}
	}
	for _, file := range filesIn(cfg.Out, ".lua") {
		text, err := os.ReadFile(file)
		if !keep[file] && err == nil && t.wrote(file, string(text)) {
			out = append(out, File{Path: file})
		}
	}
	return out
}

// owns reports whether a generated Go file was made from this target's folder of scripts.
func (t target) owns(file, text string) bool {
	from := generatedFrom(text)
	if filepath.Base(file) == callsFile {
		return from == callsOrigin(t)
	}
	return slices.Contains(t.dirs, path.Dir(from))
}

// wrote reports whether a .lua file beside the Go was made from this target's folder of scripts: its first line says
// so, or that of its Go, where it has no fragments.
func (t target) wrote(file, text string) bool {
	line, _, _ := strings.Cut(text, "\n")
	if from, ok := strings.CutPrefix(strings.TrimSuffix(line, "\r"), luaGenerated); ok {
		return slices.Contains(t.dirs, path.Dir(strings.TrimSuffix(from, doNotEdit)))
	}
	code, err := os.ReadFile(file + ".go")
	from := generatedFrom(string(code))
	return err == nil && isGenerated(string(code)) && from != filepath.Base(file) &&
		slices.Contains(t.dirs, path.Dir(from))
}

func isGenerated(text string) bool {
	line, _, _ := strings.Cut(text, "\n")
	line = strings.TrimSuffix(line, "\r") // git may have changed the line ends
	return strings.HasPrefix(line, generated) && strings.HasSuffix(line, doNotEdit)
}

// Apply writes the changed files and removes the stale ones. A file is replaced as a whole, by rename. Nothing is
// written through a symbolic link: where one stands, the file takes its place.
func Apply(files []File) error {
	for _, f := range files {
		if f.Text == nil {
			if err := os.Remove(f.Path); err != nil {
				return fmt.Errorf("luagen: %w", err)
			}
			continue
		}
		if err := replace(f); err != nil {
			return fmt.Errorf("luagen: %w", err)
		}
	}
	return nil
}

func replace(f File) error {
	dir := filepath.Dir(f.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// A new name each time, made by this process: a file that waits under a known one may be a link to elsewhere.
	temp, err := os.CreateTemp(dir, ".luagen-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(f.Text)
	err = errors.Join(err, temp.Chmod(mode(f.Path)), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), f.Path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}

// mode is that of the file which is replaced; a new one can be read by all.
func mode(file string) os.FileMode {
	if info, err := os.Lstat(file); err == nil && info.Mode().IsRegular() {
		return info.Mode().Perm()
	}
	return 0o644
}
