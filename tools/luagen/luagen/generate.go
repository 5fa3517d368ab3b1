package luagen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	Drift   Diagnostics // where a script is not its fragment's text; its file is among the changes
	Found   Diagnostics
	Sources map[string]string // file name to text, for Diagnostic.Format; fragments as part/name.lua
}

// Generate loads, puts in fragments, parses, checks and prints, and compares with the disk. It writes nothing.
func Generate(cfg Config) (Result, error) {
	res := Result{Sources: map[string]string{}}
	if err := CheckTargets(cfg.Targets); err != nil {
		return res, err
	}
	sources, err := Load(cfg.Scripts)
	if errors.Is(err, errNoScripts) {
		return cfg.withoutScripts(res, err)
	}
	if err != nil {
		return res, err
	}
	t, err := cfg.resolve()
	if err != nil {
		return res, err
	}
	parts, err := loadFragments(cfg.Scripts)
	if err != nil {
		return res, err
	}
	texts := res.expandAll(sources, parts)
	if len(parts.found) > 0 {
		res.Found = parts.found.sorted()
		return res, nil // what the scripts are is in doubt
	}
	scripts, guards := res.parseAll(texts, cfg.Targets)
	if cfg.Calls {
		res.Found = append(res.Found, checkCalls(scripts)...)
	}
	res.Found = append(res.Found, parts.unused()...).sorted()
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
	changed, err := changes(files, cfg, t)
	res.Changes = append(rewritten(texts, cfg.Scripts), changed...)
	return res, err
}

// withoutScripts is the run whose last script is gone: what was made from it is stale.
func (c Config) withoutScripts(res Result, none error) (Result, error) {
	if t, err := c.resolve(); err == nil {
		res.Changes = staleFiles(c, t, nil)
	}
	if len(res.Changes) == 0 {
		return res, none
	}
	return res, nil
}

// Stops reports whether nothing is written after these findings.
func (c Config) Stops(found Diagnostics) bool { return found.HasErrors() || c.Strict && len(found) > 0 }

// expandAll puts the fragments into the scripts.
func (res *Result) expandAll(sources []Source, parts *fragments) []expanded {
	texts := make([]expanded, len(sources))
	for i, src := range sources {
		res.Sources[src.File] = src.Text
		texts[i] = parts.expand(src)
		res.Drift = append(res.Drift, texts[i].drift...)
	}
	for file, lines := range parts.lines {
		res.Sources[file] = strings.Join(lines, "\n")
	}
	return texts
}

// parseAll reads and checks the scripts and their guards.
func (res *Result) parseAll(texts []expanded, targets []string) (scripts, guards []*Script) {
	all := make([]*Script, len(texts))
	byFile, read := map[string]expanded{}, map[*Script]Diagnostics{}
	for i, x := range texts {
		s, diags := Parse(x.File, x.text)
		s.targets = targets
		all[i], byFile[x.File], read[s] = s, x, diags
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
	res.Found = locate(append(found, Check(scripts)...).sorted(), byFile)
	return scripts, guards
}

// ofHeader reports a finding about a header that says nothing, or something wrong.
func ofHeader(d Diagnostic) bool { return d.Rule != "H001" && d.Rule != "S001" }

func emitAll(scripts, guards []*Script, cfg Config, t target) ([]File, error) {
	files, err := guardFiles(guards, cfg, t)
	if err != nil {
		return nil, err
	}
	if !t.beside {
		text, err := emitScripts(scripts, guards, t)
		if err != nil {
			return nil, err
		}
		files = append(files, File{filepath.Join(cfg.Scripts, scriptsFile), text})
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
			if !isGenerated(string(have)) {
				return nil, fmt.Errorf("luagen: %q is in the way and was not generated by luagen: move it", f.Path)
			}
			if !t.owns(f.Path, string(have)) {
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

// staleFiles are generated files whose script is gone. Only a file that starts with luagen's own header counts, and of
// the Go files one that was made from this folder of scripts: another may share the folder of the Go.
func staleFiles(cfg Config, t target, keep map[string]bool) []File {
	var out []File
	look := func(path string) {
		text, err := os.ReadFile(path)
		if !keep[path] && err == nil && isGenerated(string(text)) && t.owns(path, string(text)) {
			out = append(out, File{Path: path})
		}
	}
	for _, path := range append(filesIn(cfg.Out, ".lua.go"), filepath.Join(cfg.Scripts, scriptsFile),
		filepath.Join(cfg.Out, callsFile)) {
		look(path)
	}
	return out
}

// owns reports whether a generated file was made from this target's folder of scripts.
func (t target) owns(path, text string) bool {
	switch name := filepath.Base(path); {
	case name == callsFile:
		return strings.HasPrefix(text, generated+callsOrigin(t)+doNotEdit)
	case !strings.HasSuffix(name, ".lua.go"):
		return true // it lies in the folder of the scripts
	}
	if !t.beside {
		return strings.Contains(text, strconv.Quote(t.scriptsPath))
	}
	line, _, _ := strings.Cut(text, "\n")
	return !strings.Contains(strings.TrimPrefix(line, generated), "/")
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
func mode(path string) os.FileMode {
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		return info.Mode().Perm()
	}
	return 0o644
}
