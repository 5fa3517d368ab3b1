package luagen

import (
	"errors"
	"fmt"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
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
	Domain  string   // of the scripts, of several; it begins their names: queue_push
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
	beside bool     // the scripts lie beside the Go, but for those with fragments
	pkg    string   // package of the generated functions
	dirs   []string // the folders of the sources, as generated files name them
	domain string
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
	t := target{beside: scripts == out, pkg: c.Package, domain: c.Domain}
	if t.pkg == "" {
		t.pkg = packageName(out)
	}
	if !token.IsIdentifier(t.pkg) || t.pkg == "_" {
		return target{}, fmt.Errorf("luagen: %q is not a package name: give one with -pkg", t.pkg)
	}
	if t.dirs = []string{originDir(scripts)}; t.beside {
		t.dirs = []string{".", originDir(filepath.Join(scripts, srcDir))}
	} else if above := originDir(filepath.Dir(scripts)); above != "." {
		t.dirs = append(t.dirs, above)
	}
	return t, nil
}

// sources are the scripts of a run, and which of them are embedded as they lie on the disk. Where the Go lies beside
// the scripts, those with fragments are in the folder src.
func (c Config) sources() (all []Source, err error) {
	plain, err := readScripts(c.Scripts, true)
	if err != nil {
		return nil, fmt.Errorf("luagen: %w", err)
	}
	if !samePath(c.Scripts, c.Out) {
		all = inDir(c.Scripts, plain)
		return append(all, c.sharedGuards(all)...), nil
	}
	src := filepath.Join(c.Scripts, srcDir)
	folded, err := readScripts(src, true)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("luagen: %w", err)
	}
	plain = slices.DeleteFunc(plain, func(p Source) bool {
		line, _, _ := strings.Cut(p.Text, "\n")
		return isExpanded(line) || slices.ContainsFunc(folded, func(f Source) bool { return f.File == p.File })
	})
	return append(inDir(c.Scripts, plain), inDir(src, folded)...), nil
}

func samePath(a, b string) bool {
	one, err := filepath.Abs(a)
	two, err2 := filepath.Abs(b)
	return err == nil && err2 == nil && one == two
}

func inDir(dir string, list []Source) []Source {
	for i := range list {
		list[i].File = filepath.Join(dir, list[i].File)
	}
	return list
}

// sharedGuards are the guards in the folder above, which domains share.
func (c Config) sharedGuards(scripts []Source) (guards []Source) {
	if originDir(filepath.Join(c.Scripts, "..")) == "." {
		return nil // the module's own folder holds no scripts
	}
	have := map[string]bool{}
	for _, s := range scripts {
		have[filepath.Base(s.File)] = true
	}
	for _, s := range scripts {
		m := guardName.FindStringSubmatch(s.Text)
		if m == nil || have[m[1]] {
			continue
		}
		file := filepath.Join(c.Scripts, "..", m[1])
		if text, err := os.ReadFile(file); err == nil {
			have[m[1]] = true
			guards = append(guards, Source{file, string(text)})
		}
	}
	return guards
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
	if strings.HasSuffix(file, ".lua.go") {
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
	root, err := moduleRoot(dir)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("luagen: %w", err)
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return "", fmt.Errorf("luagen: %w", err)
	}
	return path.Join(modulePath(string(text)), filepath.ToSlash(rel)), nil
}

// moduleRoot is the folder of the go.mod above an absolute path.
func moduleRoot(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("luagen: no go.mod above %q: run go mod init", dir)
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
