// Package suspend stops and continues processes of tests, where the system can.
package suspend
