package luatomictest_test

import (
	"os"
	"testing"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/container"
)

// withoutSources is set in a child process of these tests that passes no source to Main.
const withoutSources = "LUATOMICTEST_WITHOUT_SOURCES"

func TestMain(m *testing.M) {
	if os.Getenv(withoutSources) != "" {
		luatomictest.Main(m)
	}
	luatomictest.Main(m, container.Start)
}
