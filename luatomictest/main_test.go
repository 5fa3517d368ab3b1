package luatomictest_test

import (
	"errors"
	"os"
	"testing"

	"github.com/luatomic/luatomic/luatomictest"
)

// withoutSources is set in a child process of these tests that passes no source to Main.
const withoutSources = "LUATOMICTEST_WITHOUT_SOURCES"

// withoutEngine is set in a child process whose source finds no engine.
const withoutEngine = "LUATOMICTEST_WITHOUT_ENGINE"

func noEngine(func(format string, args ...any)) (luatomictest.Shared, error) {
	return luatomictest.Shared{}, errors.New("no Docker engine answers")
}

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(withoutSources) != "":
		luatomictest.Main(m)
	case os.Getenv(withoutEngine) != "":
		luatomictest.Main(m, noEngine)
	}
	luatomictest.Main(m)
}
