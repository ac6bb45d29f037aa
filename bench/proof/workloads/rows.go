package workloads

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/kv"
)

// CheckRows checks all rows of a standard workload's keyspace as they were at one timestamp,
// without other knowledge. It returns nil for a keyspace with no rule for such rows. For banks and
// backups it checks the total.
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
