package engine

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// DiskUsage is about how many bytes the tables on disk have of a span of state keys. What is in
// memory yet is not counted.
func (s *State) DiskUsage(span keys.Span) (uint64, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	size, err := s.db.EstimateDiskUsage(span.Start, span.End)
	if err != nil {
		return 0, fmt.Errorf("size of a span of the state in %s: %w", s.dir, err)
	}
	return size, nil
}
