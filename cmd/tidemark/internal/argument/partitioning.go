package argument

import (
	"errors"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/kv"
)

// ParsePartitioning parses the value of --partitions. It returns the option, and the number of
// partitions with which such a keyspace begins.
func ParsePartitioning(text string, splitAt ...[]byte) (kv.KeyspaceOption, int, error) {
	option, err := kv.ParsePartitioning(text, splitAt...)
	if err != nil {
		var bad *kv.Error
		errors.As(err, &bad)
		return nil, 0, exit.Usagef("--partitions %s", bad.Message)
	}
	kind, count, counted := strings.Cut(text, ":")
	switch {
	case kind != "hash":
		return option, len(splitAt) + 1, nil
	case !counted:
		return option, kv.DefaultHashPartitions, nil
	}
	n, err := strconv.Atoi(count)
	return option, n, err
}
