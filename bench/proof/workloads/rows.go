package workloads

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/kv"
)

// CheckRows says what is wrong with all rows of a standard workload's keyspace as they were at one
// moment, of which nothing else is known; nil also for a keyspace of which nothing can be said. Of
// banks and backups the total is known.
func CheckRows(keyspace string, rows []kv.Pair) error {
	want, number := 0, func(kv.Pair) (int, error) { return 0, nil }
	switch {
	case strings.HasSuffix(keyspace, "bank"):
		want = opening * bankAccounts
		number = func(row kv.Pair) (int, error) { return balanceOf(row.Value) }
	case strings.HasSuffix(keyspace, "backups"):
		want = opening * backupRows
		number = func(row kv.Pair) (int, error) {
			if isNote(row.Key) {
				return 0, nil
			}
			return strconv.Atoi(string(row.Value))
		}
	}
	total := 0
	for _, row := range rows {
		n, err := number(row)
		if err != nil {
			return fmt.Errorf("%q: %w", row.Key, err)
		}
		total += n
	}
	if total != want {
		return fmt.Errorf("its rows add up to %d, and should add up to %d", total, want)
	}
	return nil
}
