package bench

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// AppendReport adds a report to a page that keeps what was measured (docs/results), under a heading
// of its own. Nothing that stands there already is changed. A page that does not exist yet is made.
func AppendReport(path, heading, report string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("keep the report: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := fmt.Fprintf(f, "\n## %s\n\n%s\n", heading, strings.TrimSpace(report)); err != nil {
		return fmt.Errorf("keep the report: %w", err)
	}
	return nil
}
