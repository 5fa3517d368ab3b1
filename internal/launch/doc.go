// Package launch runs servers and other processes for the demo, the command line and the tests: an imitation of Redis
// inside the process, the folder of a server's Unix socket, a watchdog that cleans up after a process that cannot do so
// itself, and processes that are stopped and continued.
package launch
