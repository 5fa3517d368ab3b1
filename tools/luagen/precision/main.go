// Precision measures how often luagen's findings are right: it runs vet over a sample of public scripts whose findings
// were judged by hand, and prints a table.
//
// The sample holds no source, only where each file is: repository, commit, path and digest. Sources are read from bare
// or ordinary clones below -sources, one folder owner+name for each repository; a missing one is cloned there from
// GitHub.
package main

import (
	"bytes"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

//go:embed sample.tsv
var sampleText string

//go:embed verdicts.tsv
var verdictText string

// file is one file of the sample.
type file struct{ repo, commit, path, digest string }

// place is where a finding is.
type place struct{ repo, path, pos, rule string }

func main() {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sources := flag.String("sources", filepath.Join(cache, "luagen-precision"), "folder of the clones")
	list := flag.Bool("list", false, "print the findings without a verdict, with their lines")
	flag.Parse()
	found, err := findings(*sources, readSample(sampleText))
	if err != nil {
		log.Fatal(err)
	}
	verdicts, err := readVerdicts(verdictText)
	if err != nil {
		log.Fatal(err)
	}
	if *list {
		found.listUnjudged(os.Stdout, verdicts)
		return
	}
	found.table(os.Stdout, verdicts)
}

func readSample(text string) []file {
	var files []file
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 4 {
			files = append(files, file{f[0], f[1], f[2], f[3]})
		}
	}
	return files
}

// readVerdicts reads what a person said of findings: true for right.
func readVerdicts(text string) (map[place]bool, error) {
	out := map[place]bool{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) < 5 || f[4] != "right" && f[4] != "wrong" {
			return nil, fmt.Errorf(
				"precision: verdicts.tsv: %q is not repository, path, line:column, rule, right or wrong",
				line,
			)
		}
		out[place{f[0], f[1], f[2], f[3]}] = f[4] == "right"
	}
	return out, nil
}

// sampled is what vet said of the sample.
type sampled struct {
	files   []luagen.Vetted
	repos   []string // of files
	scripts int
	stopped int // files with an error
	whole   int // scripts that are no part of a larger one
	left    int // of these, those with an error after init and fix
	reasons map[string]int
}

// findings runs vet over each repository's files.
func findings(sources string, sample []file) (*sampled, error) {
	byRepo := map[string][]luagen.Source{}
	for _, f := range sample {
		text, err := content(sources, f)
		if err != nil {
			return nil, err
		}
		byRepo[f.repo] = append(byRepo[f.repo], luagen.Source{File: f.path, Text: text})
	}
	out := &sampled{}
	for _, repo := range slices.Sorted(maps.Keys(byRepo)) {
		for _, v := range luagen.VetSources(byRepo[repo], nil) {
			out.files, out.repos = append(out.files, v), append(out.repos, repo)
			out.scripts += v.Scripts
			if v.Found.HasErrors() {
				out.stopped++
			}
			out.adopt(v)
		}
	}
	return out, nil
}

// adopt drafts a header for each whole script of a file, fixes it and counts those that luagen would still refuse.
func (s *sampled) adopt(v luagen.Vetted) {
	texts := []string{v.Source}
	if strings.HasSuffix(v.File, ".go") {
		texts = nil
		for _, lit := range luagen.GoScripts(v.File, v.Source) {
			texts = append(texts, lit.Text)
		}
	}
	for _, text := range texts {
		if partOfMore(luagen.Vet("script.lua", text)) {
			continue
		}
		s.whole++
		drafted, err := luagen.Draft("script.lua", text)
		if err == nil {
			drafted, err = luagen.Fix("script.lua", drafted)
		}
		found := luagen.Vet("script.lua", drafted)
		if partOfMore(found) {
			s.whole-- // it includes another
			continue
		}
		if err == nil && !found.HasErrors() {
			continue
		}
		s.left++
		if s.reasons == nil {
			s.reasons = map[string]int{}
		}
		rules := map[string]bool{}
		for _, d := range found {
			if d.Level() == luagen.Error && !rules[d.Rule] {
				rules[d.Rule] = true
				s.reasons[d.Rule]++
			}
		}
	}
}

// partOfMore reports a text that is no whole script: names are missing, or it does not parse.
func partOfMore(found luagen.Diagnostics) bool {
	return slices.ContainsFunc(found, func(d luagen.Diagnostic) bool {
		return d.Rule == "G002" || d.Rule == "S001"
	})
}

// content reads a file of the sample out of its repository, and compares its digest.
func content(sources string, f file) (string, error) {
	dir := filepath.Join(sources, strings.Replace(f.repo, "/", "+", 1))
	git, err := gitDir(dir, f.repo)
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	cmd := exec.Command("git", "--git-dir", git, "show", f.commit+":"+f.path)
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("precision: %s at %s: %s: %w", f.path, f.repo, strings.TrimSpace(stderr.String()), err)
	}
	if sum := sha1.Sum(text); hex.EncodeToString(sum[:]) != f.digest {
		return "", fmt.Errorf("precision: %s of %s is not the file that was judged", f.path, f.repo)
	}
	return string(text), nil
}

// gitDir finds the clone of a repository, and makes it where there is none.
func gitDir(dir, repo string) (string, error) {
	for _, at := range []string{dir, filepath.Join(dir, ".git"), filepath.Join(dir, "repo"),
		filepath.Join(dir, "repo", ".git")} {
		if _, err := os.Stat(filepath.Join(at, "HEAD")); err == nil {
			return at, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	cmd := exec.Command("git", "clone", "--quiet", "--bare", "https://github.com/"+repo, dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("precision: clone of %s: %w", repo, err)
	}
	return dir, nil
}

func (s *sampled) each(do func(repo string, v luagen.Vetted, at place, d luagen.Diagnostic)) {
	for i, v := range s.files {
		for _, d := range v.Found {
			do(s.repos[i], v, place{s.repos[i], v.File, fmt.Sprintf("%d:%d", d.Pos.Line, d.Pos.Col), d.Rule}, d)
		}
	}
}

// tally counts the findings of one rule.
type tally struct {
	level                luagen.Level
	hits, judged, rights int
}

func (s *sampled) tallies(verdicts map[place]bool) map[string]*tally {
	all := map[string]*tally{}
	s.each(func(_ string, _ luagen.Vetted, at place, d luagen.Diagnostic) {
		t := all[d.Rule]
		if t == nil {
			t = &tally{level: d.Level()}
			all[d.Rule] = t
		}
		t.hits++
		if right, ok := verdicts[at]; ok {
			t.judged++
			if right {
				t.rights++
			}
		}
	})
	return all
}

func (s *sampled) table(w io.Writer, verdicts map[place]bool) {
	all := s.tallies(verdicts)
	fmt.Fprintln(w, "| rule | level | findings | judged | right |\n|---|---|---|---|---|")
	var sum tally
	for _, rule := range slices.Sorted(maps.Keys(all)) {
		t := all[rule]
		sum.hits, sum.judged, sum.rights = sum.hits+t.hits, sum.judged+t.judged, sum.rights+t.rights
		fmt.Fprintf(w, "| %s | %s | %d | %d | %s |\n", rule, t.level, t.hits, t.judged, share(t.rights, t.judged))
	}
	fmt.Fprintf(w, "| all | | %d | %d | %s |\n\n", sum.hits, sum.judged, share(sum.rights, sum.judged))
	fmt.Fprintf(w, "Scripts: %d. Files with an error: %d of %d, %s.\n", s.scripts, s.stopped, len(s.files),
		share(s.stopped, len(s.files)))
	fmt.Fprintf(w, "Whole scripts: %d. With an error after init and fix: %d, %s", s.whole, s.left,
		share(s.left, s.whole))
	for i, rule := range slices.Sorted(maps.Keys(s.reasons)) {
		fmt.Fprintf(w, "%s%s %d", map[bool]string{true: " (", false: ", "}[i == 0], rule, s.reasons[rule])
	}
	if len(s.reasons) > 0 {
		fmt.Fprint(w, ")")
	}
	fmt.Fprintln(w, ".")
}

func share(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(n)/float64(of))
}

func (s *sampled) listUnjudged(w io.Writer, verdicts map[place]bool) {
	s.each(func(repo string, v luagen.Vetted, at place, d luagen.Diagnostic) {
		if _, ok := verdicts[at]; !ok {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n%s\n", repo, at.path, at.pos, at.rule, d.Format(v.Source))
		}
	})
}
