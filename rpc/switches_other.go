//go:build !unix

package rpc

func involuntarySwitches() int64 { return 0 }
