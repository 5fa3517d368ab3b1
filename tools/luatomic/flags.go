package main

import (
	"errors"
	"flag"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// badValue is the end of an error of package flag whose cause has no cure.
var badValue = regexp.MustCompile(` for (?:flag )?-([a-z-]+): (?:parse error|value out of range)$`)

// emptyValue is the beginning of an error of package flag about a value that is empty.
var emptyValue = regexp.MustCompile(`^invalid value "" for flag -([a-z-]+): `)

// emptyMeans are the flags of which an empty text is a value: the texts that others read.
var emptyMeans = []string{"note", "reason"}

// aboveZero are the flags of which 0 would pass for a flag that is left out: a fence that no holder has, and limits.
var aboveZero = []string{"age", "bytes", "fence", "heal", "keep", "max-hold"}

// text is a flag's value that is not empty. The variable of a script that is not set would pass for a flag that is left
// out, and what that flag protects from would be done.
type text struct{ flag.Value }

var errEmpty = errors.New("it is empty")

func (t text) Set(v string) error {
	if v == "" {
		return errEmpty
	}
	return t.Value.Set(v)
}

func (t text) Get() any {
	if g, ok := t.Value.(flag.Getter); ok {
		return g.Get()
	}
	return nil
}

// isSwitch reports whether the flag can stand without a value.
func isSwitch(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// refuseEmpty makes an empty value of any flag an error, when all are defined.
func refuseEmpty(fs *flag.FlagSet) {
	fs.VisitAll(func(f *flag.Flag) {
		if !isSwitch(f) && !slices.Contains(emptyMeans, f.Name) {
			f.Value = text{f.Value}
		}
	})
}

// checkZero refuses a 0 that would pass for a flag that is left out.
func checkZero(fs *flag.FlagSet) (err error) {
	fs.Visit(func(f *flag.Flag) {
		if v := f.Value.String(); (v == "0" || v == "0s") && slices.Contains(aboveZero, f.Name) {
			err = usagef("%s: %s is 0; leave it out, or write more than 0", fs.Name(), dashes(f.Name))
		}
	})
	return err
}

// flagError is an error of package flag with its cure. A flag whose value can be left out is a boolean to that package
// alone.
func flagError(fs *flag.FlagSet, err error) string {
	if found := emptyValue.FindStringSubmatch(err.Error()); found != nil {
		shown, _ := flagHelp(fs.Lookup(found[1]))
		return dashes(found[1]) + " is empty; leave it out, or write " + shown + "; is the variable set?"
	}
	return strings.Replace(err.Error(), "invalid boolean value", "invalid value", 1) + flagCure(fs, err)
}

// flagCure is what to do about a flag that there is not, one without its value, or a value that cannot be read.
func flagCure(fs *flag.FlagSet, err error) string {
	text := err.Error()
	if _, name, ok := strings.Cut(text, "not defined: -"); ok && name != "" {
		return unknownCure(fs, name)
	}
	if _, name, ok := strings.Cut(text, "flag needs an argument: -"); ok && fs.Lookup(name) != nil {
		shown, _ := flagHelp(fs.Lookup(name))
		return "; write " + shown
	}
	found := badValue.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return valueCure(fs.Lookup(found[1]))
}

// unknownCure is about a flag that there is not, or an argument that was taken for one.
func unknownCure(fs *flag.FlagSet, name string) string {
	if strings.Trim(name[:1], "0123456789.") == "" {
		return "; write an argument that begins with - last, after --"
	}
	word := strings.TrimLeft(name, "-")
	isWord := func(c *command) bool { return c.name == word }
	if fs.Name() == program && slices.ContainsFunc(commands(), isWord) {
		return "; write luatomic " + word
	}
	var names []string
	fs.VisitAll(func(f *flag.Flag) { names = append(names, dashes(f.Name)) })
	if cure := meant(dashes(word), names, ""); cure != "" {
		return "; " + cure
	}
	return ""
}

// given reports whether the flag is on the command line.
func given(fs *flag.FlagSet, name string) (found bool) {
	fs.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// valueCure is how a value of the flag is written, where package flag does not say it.
func valueCure(f *flag.Flag) string {
	if f == nil {
		return ""
	}
	value, ok := f.Value.(flag.Getter)
	if !ok {
		return "" // its own error says it
	}
	switch value.Get().(type) {
	case time.Duration:
		return "; write a duration with its unit, such as 30s or 1h30m"
	case int, int64:
		return "; write a whole number"
	case bool:
		return "; write " + dashes(f.Name) + " alone"
	}
	return ""
}

// joinWatch lets an interval follow --watch without a "=", which package flag does
// not offer for a value that may be left out.
func joinWatch(fs *flag.FlagSet, args []string) []string {
	i := slices.IndexFunc(args, func(a string) bool { return a == "--watch" || a == "-watch" })
	if i < 0 || i+1 == len(args) {
		return args
	}
	if d, err := time.ParseDuration(args[i+1]); err != nil || d < 0 {
		// A number alone is meant as an interval too; Set reports that its unit is missing.
		_, notNumber := strconv.ParseFloat(args[i+1], 64)
		f := fs.Lookup("watch")
		if f == nil || notNumber != nil {
			return args
		}
		if _, takes := f.Value.(*interval); !takes {
			return args
		}
	}
	joined := append(slices.Clone(args[:i]), "--watch="+args[i+1])
	return append(joined, args[i+2:]...)
}
