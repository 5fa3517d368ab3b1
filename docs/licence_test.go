package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// licences are the words by which a text is known, and that a program under the MIT licence can be built with.
var licences = map[string]*regexp.Regexp{
	"MIT":    regexp.MustCompile(`(?i)permission is hereby granted, free of charge`),
	"BSD":    regexp.MustCompile(`(?i)redistribution and use in source and binary forms`),
	"Apache": regexp.MustCompile(`(?i)apache license\s+version 2\.0`),
	"ISC":    regexp.MustCompile(`(?i)permission to use, copy, modify, and(/or)? distribute this software`),
	"MPL":    regexp.MustCompile(`(?i)mozilla public license,? version 2\.0`),
}

// Each module that the library, the command line and the generator are compiled of has one of these licences.
func TestLicencesOfDependencies(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	require.NoError(t, err)
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		module, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || seen[module] {
			continue
		}
		seen[module] = true
		require.NotEmpty(t, licenceOf(t, dir), "%s in %s", module, dir)
	}
	require.Greater(t, len(seen), 5)
}

// licenceOf is the kind of licence that a module's folder has, or "".
func licenceOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "[LC][IO][CP][EY]*"))
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for name, words := range licences {
			if words.Match(text) {
				return name
			}
		}
	}
	return ""
}
