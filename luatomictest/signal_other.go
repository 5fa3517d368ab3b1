//go:build !unix

package luatomictest

import "errors"

var errNoStop = errors.New("this system cannot stop and continue a process")

func pauseProcess(int) error { return errNoStop }

func resumeProcess(int) error { return errNoStop }
