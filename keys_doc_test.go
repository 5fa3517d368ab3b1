package luatomic_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// suffixes are the ends of a queue's keys by their names in the headers of the scripts.
var suffixes = map[string]string{
	"ready": "r", "scheduled": "s", "leases": "l", "dead": "d", "control": "c", "bodies": "b", "failures": "n",
	"unique": "u",
	"expiry": "ux", "wake": "w", "options": "o", "finished": "f", "receipt": "i",
}

// The keys that a method of a queue names in its doc are those of its script.
func TestDocsOfTheQueueNameTheKeysOfTheScripts(t *testing.T) {
	t.Parallel()
	docs := docsOf(t, "queue")
	for method, script := range map[string]string{
		"Push": "queue_push", "PushAll": "queue_push_many", "Take": "queue_take", "Ack": "queue_ack",
		"Nack":   "queue_nack",
		"Extend": "queue_extend", "Reclaim": "queue_reclaim", "Promote": "queue_promote", "BuryJobs": "queue_bury",
		"Cancel": "queue_cancel", "Reschedule": "queue_reschedule", "Requeue": "queue_requeue", "Trim": "queue_trim",
		"Pause": "queue_control", "Resume": "queue_control", "SetLimit": "queue_control", "Stats": "queue_stats",
		"Release": "queue_nack", "Find": "queue_find", "Peek": "queue_peek", "Audit": "queue_mend",
	} {
		_, keys, ok := strings.Cut(strings.Join(strings.Fields(docs[method]), " "), "Keys: ")
		require.True(t, ok, "%s names no keys", method)
		keys = keys[:strings.IndexAny(keys, ".;")]
		named := regexp.MustCompile(`\b(ux|[rsldcbnuwofi])\b`).FindAllString(keys, -1)
		require.ElementsMatch(t, suffixesOf(t, script), named, "%s: %s", method, keys)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "queue/doc.go", nil, parser.ParseComments)
	require.NoError(t, err)
	for name, suffix := range suffixes {
		require.Regexp(t, `\s`+suffix+`(:\*)? +(list|zset|hash|string) `, file.Doc.Text(), name)
	}
}

// docsOf are the comments of the methods and functions of a package.
func docsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.go")
	require.NoError(t, err)
	out := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && (f.Recv == nil || receiver(f) == "Queue") {
				out[f.Name.Name] = f.Doc.Text()
			}
		}
	}
	return out
}

func receiver(f *ast.FuncDecl) string {
	if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok {
		if name, ok := star.X.(*ast.Ident); ok {
			return name.Name
		}
	}
	return ""
}

// suffixesOf are those of the keys in the header of a script.
func suffixesOf(t *testing.T, script string) []string {
	t.Helper()
	text, err := os.ReadFile("scripts/" + strings.Replace(script, "_", "/", 1) + ".lua")
	require.NoError(t, err)
	s, found := luagen.Parse(script+".lua", string(text))
	require.False(t, found.HasErrors(), script)
	var out []string
	for _, key := range s.Keys {
		for _, e := range key.Elements() {
			require.Contains(t, suffixes, e.Name, script)
			out = append(out, suffixes[e.Name])
		}
	}
	slices.Sort(out)
	return out
}
