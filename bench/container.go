//go:build container

package main

import "github.com/luatomic/luatomic/luatomictest/container"

func init() { sources = append(sources, container.Start) }
