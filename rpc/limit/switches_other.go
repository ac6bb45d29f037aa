//go:build !unix

package limit

func involuntarySwitches() int64 { return 0 }
