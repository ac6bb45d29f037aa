package kv

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// ParsePartitioning reads how a keyspace is to be partitioned, as a flag or a configuration file
// says it:
//
//	"hash:8"   spread over 8 partitions by hash
//	"hash"     the same, with DefaultHashPartitions
//	"range"    in key order, in one partition, or split at the given keys
//
// The result is an option for CreateKeyspace: what Hash or Range would return. Split points go with
// "range" only, and have to be ascending.
func ParsePartitioning(text string, splitAt ...[]byte) (KeyspaceOption, error) {
	kind, count, counted := strings.Cut(text, ":")
	switch {
	case kind == "range" && counted:
		return nil, badPartitioning("%q: range takes no number; name the split points instead", text)
	case kind == "range":
		return Range(splitAt...), nil
	case kind != "hash":
		return nil, badPartitioning("%q: write hash:N (for instance hash:32) or range", text)
	case len(splitAt) > 0:
		return nil, badPartitioning("%q: split points are for range keyspaces; a hash keyspace has a fixed number of partitions", text)
	case !counted:
		return Hash(DefaultHashPartitions), nil
	}
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil || n < 1 || n > keys.MaxHashPartitions {
		return nil, badPartitioning("%q: the number of hash partitions is 1 to %d", text, keys.MaxHashPartitions)
	}
	return Hash(int(n)), nil
}

func badPartitioning(format string, args ...any) error {
	return &Error{Op: "partitioning", Message: fmt.Sprintf(format, args...), wraps: []error{ErrInvalidArgument}}
}

// Partitioning is how the keyspace is partitioned, as ParsePartitioning reads it: "hash:8" or
// "range".
func (i KeyspaceInfo) Partitioning() string { return partitioningText(i.HashPartitions) }

func partitioningText(hashPartitions int) string {
	if hashPartitions == 0 {
		return "range"
	}
	return fmt.Sprintf("hash:%d", hashPartitions)
}
