package luagen

import (
	"errors"
	"fmt"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Config says where the scripts are and where the Go goes.
type Config struct {
	Scripts string   // folder of the .lua files
	Out     string   // folder of the generated Go; the same as Scripts for one package that embeds its own scripts
	Package string   // "" = taken from the Go files in Out, else from the folder's name
	Strict  bool     // warnings stop the run, too
	Calls   bool     // print calls.go, too: the functions as an interface, and a fake
	Targets []string // where the scripts have to run, see TargetNames; none for no such rule
}

// Source is one .lua file as loaded.
type Source struct{ File, Text string }

var errNoScripts = errors.New("no .lua files")

// Load reads the .lua files of a folder, sorted by name, as they are on the disk. A folder without any is an error.
func Load(dir string) ([]Source, error) {
	sources, err := readScripts(dir, true)
	if err != nil {
		return nil, fmt.Errorf("luagen: %w", err)
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("luagen: %w in %q: write one there, or name another folder with -scripts",
			errNoScripts, dir)
	}
	return sources, nil
}

// readScripts reads the .lua files of one folder. Those that are embedded are no links.
func readScripts(dir string, embedded bool) ([]Source, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var sources []Source
	for _, e := range entries {
		// Names with a dot in front are those of editors; go:embed does not see them either.
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".lua") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		file := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, noTarget(file, err)
		}
		if embedded && !e.Type().IsRegular() {
			return nil, fmt.Errorf("%q is a symbolic link, and go:embed takes none: put the file itself there", file)
		}
		sources = append(sources, Source{e.Name(), string(text)})
	}
	return sources, nil
}

// target is a resolved Config: what the printed Go has to say about places.
type target struct {
	beside      bool
	pkg         string // package of the generated functions
	scriptsPkg  string // package of the embedded texts, when apart
	scriptsPath string // its import path
	scriptsBase string // the folder's name, for "from scripts/x.lua"
}

func (c Config) resolve() (target, error) {
	scripts, err := filepath.Abs(c.Scripts)
	if err != nil {
		return target{}, fmt.Errorf("luagen: %w", err)
	}
	out, err := filepath.Abs(c.Out)
	if err != nil {
		return target{}, fmt.Errorf("luagen: %w", err)
	}
	t := target{beside: scripts == out, scriptsBase: filepath.Base(scripts), pkg: c.Package}
	if t.pkg == "" {
		t.pkg = packageName(out)
	}
	if !token.IsIdentifier(t.pkg) || t.pkg == "_" {
		return target{}, fmt.Errorf("luagen: %q is not a package name: give one with -pkg", t.pkg)
	}
	if t.beside {
		return t, nil
	}
	t.scriptsPkg = packageName(scripts)
	if !token.IsIdentifier(t.scriptsPkg) || t.scriptsPkg == "_" {
		return target{}, fmt.Errorf("luagen: %q is not a package name: rename the folder of the scripts", t.scriptsPkg)
	}
	if t.scriptsPkg == "main" {
		return target{}, fmt.Errorf(
			"luagen: %q is a program, and none can be imported: give the scripts a folder of their own",
			c.Scripts,
		)
	}
	if t.scriptsPath, err = ImportPath(scripts); err != nil {
		return target{}, err
	}
	return t, oneModule(scripts, out)
}

// oneModule reports scripts whose package, which luagen writes, is in another module than the Go: go.mod chooses the
// version of that one, and it may have no scripts.go.
func oneModule(scripts, out string) error {
	at, _, err := moduleOf(scripts)
	if err != nil {
		return err
	}
	if of, _, err := moduleOf(out); err == nil && of != at {
		return fmt.Errorf("luagen: the scripts are in the module of %q, the Go in that of %q: "+
			"copy the scripts into that module, or name a folder of the other one with -out", at, of)
	}
	return nil
}

// packageName reads the name in the Go files of dir: of hand-written ones first, then of generated ones, of those that
// are built elsewhere, and of tests. A folder without Go gives its own name.
func packageName(dir string) string {
	files := filesIn(dir, ".go")
	slices.SortStableFunc(files, func(a, b string) int { return rank(a) - rank(b) })
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly)
		if err != nil || rank(file) >= elsewhere && f.Name.Name == "main" {
			continue
		}
		if rank(file) == tests {
			return strings.TrimSuffix(f.Name.Name, "_test")
		}
		return f.Name.Name
	}
	return strings.NewReplacer("-", "", ".", "").Replace(strings.ToLower(filepath.Base(dir)))
}

// The ranks behind those of the files that are built: files for another system and programs that are run by their
// file's name (//go:build ignore), then tests, which may be of the package foo_test.
const (
	elsewhere = iota + 2
	tests
)

func rank(file string) int {
	if strings.HasSuffix(file, "_test.go") {
		return tests
	}
	if strings.HasSuffix(file, ".lua.go") || filepath.Base(file) == scriptsFile {
		return 1
	}
	if ok, err := build.Default.MatchFile(filepath.Split(file)); err == nil && !ok {
		return elsewhere
	}
	return 0
}

// filesIn lists the files of dir whose names end so; none if there is no dir. A glob would take the folder's own name
// for a pattern.
func filesIn(dir, suffix string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), suffix) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files
}

// ImportPath finds the go.mod above dir and joins its module path with the rest.
func ImportPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("luagen: %w", err)
	}
	root, gomod, err := moduleOf(dir)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return "", fmt.Errorf("luagen: %w", err)
	}
	return path.Join(modulePath(gomod), filepath.ToSlash(rel)), nil
}

// moduleOf is the folder of the go.mod above dir, and its text.
func moduleOf(dir string) (root, gomod string, err error) {
	for at := dir; ; at = filepath.Dir(at) {
		text, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil {
			return at, string(text), nil
		}
		if at == filepath.Dir(at) {
			return "", "",
				fmt.Errorf("luagen: no go.mod above %q: run go mod init, or keep the scripts beside the Go files", dir)
		}
	}
}

func modulePath(gomod string) string {
	for line := range strings.SplitSeq(gomod, "\n") {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "module" {
			return strings.Trim(fields[1], `"`)
		}
	}
	return ""
}
