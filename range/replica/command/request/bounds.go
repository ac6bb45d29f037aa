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
	// transaction (DESIGN section 14): the bytes of keys and values. MaxBatchBytes bounds what a
	// batch of keys brings, too.
	MaxBatchOperations = 100_000
	MaxBatchBytes      = 64 << 20
	// MaxEntryBytes bounds what a request takes in an entry of the log, with all that surrounds its
	// keys and values, so that the entry fits into a message (wire.MaxMessageBytes).
	MaxEntryBytes = 78 << 20
	// MaxReadSet bounds the keys and spans of a read set.
	MaxReadSet = 100_000
	// MaxHoldSpans bounds the spans that one request holds.
	MaxHoldSpans = 64
	// MaxResolutions bounds a Resolve.
	MaxResolutions = 10_000
	// MaxSkipped is how many keys without a value a page looks at: a page can be empty, and yet not
	// the last. It takes some ten milliseconds to look at so many.
	MaxSkipped = 10_000
)

const (
	// WriteOverhead is about what a version takes in an entry besides the key and value of the
	// client.
	WriteOverhead = 64
	// LockOverhead is about what a lock takes in an entry besides key, value and anchor.
	LockOverhead = 128
)

// Counting sends no rows, so its pages are larger; their end keeps one request from holding a
// goroutine for long.
const (
	defaultCountRows = 100_000
	maxCountRows     = 1_000_000
)

// PageRows is the number of rows in a page that asks for n.
func PageRows(n uint32) int { return paged(n, DefaultPageRows, MaxPageRows) }

// PageBytes is the number of bytes in a page that asks for n.
func PageBytes(n uint32) int64 { return int64(paged(n, DefaultPageBytes, MaxPageBytes)) }

// CountRows is the number of keys that a page of a count that asks for n counts.
func CountRows(n uint32) int { return paged(n, defaultCountRows, maxCountRows) }

func paged(n uint32, usual, most int) int {
	if n == 0 {
		return usual
	}
	return min(int(min(n, math.MaxInt32)), most)
}
