package storage

import (
	"errors"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// ErrRecord is a stored record that is not what was written.
var ErrRecord = errors.New("a stored record is damaged")

// IsDamage says that an error comes from stored data that is not what was written.
func IsDamage(err error) bool {
	return engine.IsCorruption(err) || errors.Is(err, mvcc.ErrCorrupt) || errors.Is(err, ErrRecord)
}
