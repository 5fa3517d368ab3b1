// Package container starts the shared server of luatomictest in a container. It is built with the tag "container"
// alone, so that nothing else depends on testcontainers and what that requires:
//
//	func TestMain(m *testing.M) { luatomictest.Main(m, container.Start) } // go test -tags container
package container
