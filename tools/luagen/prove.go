package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/luatomic/luatomic/tools/luagen/luaprove"
)

const proveUsage = `luagen prove runs scripts on a server and holds what they leave behind against their headers.

usage: luagen prove [-redis URL] [-n calls] [-seed number] FILE or FOLDER...

Calls are drawn from the declared types, with a stopped clock. The scripts of one run whose keys have the same names make the
data of each other; data of the declared types is drawn for a script that stands alone, and for keys that none of them makes.
Each call is repeated at once, as after a lost reply, made again with each of its writes failing, and with each key of a wrong
type, and the data, times to live too, is held against @retry, @contract,
@readonly and @merge. A redis-server or valkey-server from PATH is started for the run.

  -n calls      of each script; default 100
  -redis URL    another server, and the number of the database; IT IS EMPTIED: redis://localhost:6379/9
  -seed number  the same seed draws the same calls; default 1

A script that may write, and none of whose calls changes anything, is "not tried": its promises are open. Prove it
beside the scripts that make its data, or with calls and data of your own: package luaprove, Check.

exit codes: 0 all promises held, 1 one was broken, 2 wrong usage, 3 none was broken and a script was not tried
`

// prove runs the verb of that name.
func prove(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("prove", flag.ContinueOnError)
	url, n, seed := flags.String("redis", "", ""), flags.Int("n", 100, ""), flags.Uint64("seed", 1, "")
	paths, code, ok := parsePaths(flags, args, proveUsage, stdout, stderr)
	if !ok {
		return code
	}
	if len(paths) == 0 {
		return wrongUsage(stderr, "prove", proveUsage, errors.New("name files or folders"))
	}
	if *n < 1 {
		return wrongUsage(stderr, "prove", proveUsage, fmt.Errorf("-n is %d: name 1 or more", *n))
	}
	scripts, files, err := parsedScripts(paths)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	ctx, stop := untilInterrupted()
	defer stop()
	client, release, err := emptyServer(ctx, *url)
	if ctx.Err() != nil && err != nil {
		err = errInterrupted
	}
	if errors.Is(err, errURL) {
		fmt.Fprintln(stderr, "luagen prove:", err)
		return 2
	} else if err != nil {
		fmt.Fprintln(stderr, "luagen prove:", err)
		return 1
	}
	defer release()
	verdicts := map[int]bool{}
	for i, s := range scripts {
		result, err := luaprove.Prove(ctx, client, s, scripts, *n, *seed)
		if ctx.Err() != nil {
			fmt.Fprintln(stderr, "luagen prove:", errInterrupted)
			return 1
		}
		verdicts[printProof(files[i], s, result, err, stdout, stderr)] = true
	}
	switch {
	case verdicts[1]:
		return 1
	case verdicts[exitNotTried]:
		return exitNotTried
	}
	return 0
}

const exitNotTried = 3

// parsedScripts reads the scripts of files and folders.
func parsedScripts(paths []string) (scripts []*luagen.Script, files []string, err error) {
	for _, path := range paths {
		found, err := luagen.ScriptFiles(path)
		if err != nil {
			return nil, nil, err
		}
		if len(found) == 0 {
			return nil, nil, fmt.Errorf("luagen: no scripts with a header below %q: name a folder of scripts", path)
		}
		for _, file := range found {
			source, err := luagen.ReadRunnable(file)
			if err != nil {
				return nil, nil, err
			}
			s, diags := luagen.Parse(filepath.Base(file), source.Text)
			if diags.HasErrors() || s.Body == nil {
				return nil, nil, fmt.Errorf("%s: %v", file, diags)
			}
			s.Domain = domainOf(path, file)
			scripts, files = append(scripts, s), append(files, file)
		}
	}
	return scripts, files, nil
}

// domainOf is the folder of a script below that of all.
func domainOf(path, file string) string {
	dir, err := filepath.Rel(path, filepath.Dir(file))
	if err != nil || dir == "." || filepath.Base(dir) == "src" || strings.HasPrefix(dir, "..") {
		return ""
	}
	return filepath.ToSlash(dir)
}

func printProof(file string, s *luagen.Script, result luaprove.Result, err error, stdout, stderr io.Writer) int {
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "luagen prove: %s: %v\n", file, err)
		return 1
	case result.Broken != "":
		fmt.Fprintf(stdout, "%s: %s", file, result.Broken)
		return 1
	}
	open, verdict, code := result.NotTried(s), "holds", 0
	if open != "" {
		verdict, code = "not tried: "+open, exitNotTried
	}
	fmt.Fprintf(stdout, "%s: %s; calls %d, changes %d, repeats %d, failed writes %d, wrong types %d\n",
		file, verdict, result.Calls, result.Changes, result.Repeats, result.Faults, result.WrongTypes)
	return code
}
