package request

import "math"

// Bounds of pages, in rows and bytes.
const (
	DefaultPageRows  = 1000
	MaxPageRows      = 10_000
	DefaultPageBytes = 1 << 20
	MaxPageBytes     = 4 << 20
)

// Bounds of requests.
const (
	// MaxBatchOperations and MaxBatchBytes bound a WriteBatch and a Prepare, as they bound a
	// transaction (DESIGN section 14): the bytes of keys and values. MaxBatchBytes also bounds the
	// answer of a BatchGet.
	MaxBatchOperations = 100_000
	MaxBatchBytes      = 64 << 20
	// MaxEntryBytes bounds a request's part of a log entry, including overhead, so that the entry
	// fits into a message (wire.MaxMessageBytes).
	MaxEntryBytes = 78 << 20
	// MaxReadSet bounds the keys and spans of a read set.
	MaxReadSet = 100_000
	// MaxHoldSpans bounds the spans that one request holds.
	MaxHoldSpans = 64
	// MaxResolutions bounds a Resolve.
	MaxResolutions = 10_000
	// MaxSkipped bounds the keys without a value that a page looks at, which take some ten
	// milliseconds. So a page can be empty and yet not be the last.
	MaxSkipped = 10_000
)

const (
	// WriteOverhead estimates the bytes of a version in an entry besides the client's key and
	// value.
	WriteOverhead = 64
	// LockOverhead estimates the bytes of a lock in an entry besides key, value and anchor.
	LockOverhead = 128
)

// A count sends no rows, so its pages are larger; they are bounded so that one request does not
// hold a goroutine for long.
const (
	defaultCountRows = 100_000
	maxCountRows     = 1_000_000
)

// PageRows returns the number of rows of a page for which a client asked for n; 0: the default.
func PageRows(n uint32) int { return paged(n, DefaultPageRows, MaxPageRows) }

// PageBytes returns the number of bytes of a page for which a client asked for n; 0: the default.
func PageBytes(n uint32) int64 { return int64(paged(n, DefaultPageBytes, MaxPageBytes)) }

// CountRows returns the number of keys that a page of a count counts if a client asked for n; 0:
// the default.
func CountRows(n uint32) int { return paged(n, defaultCountRows, maxCountRows) }

func paged(n uint32, usual, most int) int {
	if n == 0 {
		return usual
	}
	return min(int(min(n, math.MaxInt32)), most)
}
