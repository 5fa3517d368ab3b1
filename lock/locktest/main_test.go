package locktest_test

import (
	"testing"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/container"
)

func TestMain(m *testing.M) { luatomictest.Main(m, container.Start) }
