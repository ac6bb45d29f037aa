package main

import (
	"strconv"
	"strings"
)

// Hash partitions of a keyspace.
const (
	defaultHashPartitions = 32
	maxHashPartitions     = 16384
)

// partitioning is the value of --partitions.
type partitioning struct {
	hash  bool
	count uint32 // of hash partitions
}

func parsePartitioning(text string) (partitioning, error) {
	kind, count, counted := strings.Cut(text, ":")
	switch {
	case kind == "range" && !counted:
		return partitioning{}, nil
	case kind == "range":
		return partitioning{}, usagef("--partitions %q: range takes no number; give the places to split with --split-at", text)
	case kind == "hash" && !counted:
		return partitioning{hash: true, count: defaultHashPartitions}, nil
	case kind == "hash":
		n, err := strconv.ParseUint(count, 10, 32)
		if err != nil || n < 1 || n > maxHashPartitions {
			return partitioning{}, usagef("--partitions %q: the number of hash partitions is 1 to %d", text, maxHashPartitions)
		}
		return partitioning{hash: true, count: uint32(n)}, nil
	}
	return partitioning{}, usagef("--partitions %q: use hash:N (for instance hash:32) or range", text)
}
