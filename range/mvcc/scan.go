package mvcc

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
)

// ScanOptions are the options of a scan.
type ScanOptions struct {
	// Span is a span of internal keys.
	Span keys.Span
	// At is the timestamp as of which keys are read.
	At hlc.Timestamp
	// Uncertain makes the scan return an *UncertaintyError at a key with an uncertain version or
	// expiry.
	Uncertain Limits
	// ExpiredAt is the time with which expiries are compared; zero means At.
	ExpiredAt hlc.Timestamp
	// Reverse scans from the end of the span to its start.
	Reverse bool
	// KeysOnly omits the values; they do not count towards MaxBytes.
	KeysOnly bool
	// MaxRows ends the scan after so many rows. 0: no limit.
	MaxRows int
	// MaxBytes ends the scan before a row with which keys and values would exceed it, in bytes; the
	// first row is emitted in any case. 0: no limit.
	MaxBytes int64
	// MaxSkipped ends the scan after so many keys without a visible value (deleted, or written
	// later), so that the work of a call is bounded. 0: no limit.
	MaxSkipped int
	// Vacant is as in Source.
	Vacant *vacant.Memory
}

// ScanResult is the result of a scan, without the rows.
type ScanResult struct {
	// Rows and Bytes count the emitted rows, and the bytes of their keys and values.
	Rows  int
	Bytes int64
	// More is set if a limit ended the scan. The next scan continues at Resume.
	More bool
	// Resume is where the next scan begins: the Start of its span, or for a reverse scan its End.
	// It is a copy.
	Resume []byte
	// CommitWaitUntil is the highest timestamp of the versions with commit wait that were seen,
	// including tombstones; zero if there was none.
	CommitWaitUntil hlc.Timestamp
	// Expires is the first expiry of the emitted versions, a wall time; 0 if none expires.
	Expires int64
}

// Scan reads the keys in a span as of a timestamp, in order, and hands those with a value to emit,
// whose arguments are valid until it returns. An error of emit ends the scan and is returned. emit
// may be nil.
func Scan(r engine.Reader, o ScanOptions,
	emit func(key []byte, v Version) error) (ScanResult, error) {
	return Merge([]Source{{Reader: r, Span: o.Span, Uncertain: o.Uncertain, Vacant: o.Vacant}}, o,
		emit)
}

// Count is Scan without values: the rows of the result are the number of keys.
func Count(r engine.Reader, o ScanOptions) (ScanResult, error) {
	o.KeysOnly = true
	return Scan(r, o, nil)
}
